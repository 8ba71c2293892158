//! Literals among the values of options.

use syn::{Expr, ExprLit, ExprUnary, Lit, UnOp};

/// The expression without the groups that `macro_rules!` and parentheses put
/// around it.
pub(crate) fn peel(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => peel(&group.expr),
        Expr::Paren(paren) => peel(&paren.expr),
        other => other,
    }
}

pub(crate) fn literal(expr: &Expr) -> Option<&Lit> {
    match peel(expr) {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

/// True for `-1` and `-0.5`.
pub(crate) fn is_negative(expr: &Expr) -> bool {
    match peel(expr) {
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => {
            matches!(literal(expr), Some(Lit::Int(_) | Lit::Float(_)))
        }
        _ => false,
    }
}

/// True if the value is written out, so that it can be checked here.
pub(crate) fn is_literal(expr: &Expr) -> bool {
    literal(expr).is_some() || is_negative(expr)
}

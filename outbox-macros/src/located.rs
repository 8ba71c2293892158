//! Spans at the user's tokens, of what belongs to a macro.

use proc_macro2::{Ident, Span};
use syn::spanned::Spanned;

/// A span at the user's tokens that resolves names as the macro does.
pub(crate) fn at(tokens: &impl Spanned) -> Span {
    Span::mixed_site().located_at(tokens.span())
}

/// A name at the user's token that belongs to the macro. Lints about hand-written code leave it
/// alone.
pub(crate) fn located(name: &Ident) -> Ident {
    let mut name = name.clone();
    name.set_span(at(&name));
    // The span has the edition of this crate, to which it would be a keyword.
    if name == "gen" { Ident::new_raw("gen", name.span()) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_keyword_to_the_user_is_none_to_the_macro() {
        let located = |name| located(&Ident::new(name, Span::call_site())).to_string();
        assert_eq!((&*located("gen"), &*located("general")), ("r#gen", "general"));
    }
}

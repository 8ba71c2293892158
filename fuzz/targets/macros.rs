//! Any tokens as the arguments and the item of `#[subscriber]`, and under
//! `#[derive(Failure)]`: errors at the user's own tokens, or code; never a panic.

use proc_macro2::{TokenStream, TokenTree};

/// rustc itself does not go deeper than this by default, and syn has no limit.
const DEEPEST: usize = 64;

fn is_deep(text: &str) -> bool {
    let mut depth = 0_usize;
    text.chars().any(|sign| {
        match sign {
            '(' | '[' | '{' | '<' | '&' | '*' | '!' | '-' | '|' => depth += 1,
            ')' | ']' | '}' | '>' | ';' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEEPEST
    })
}

/// The arguments, a line of `====`, and the item.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if is_deep(text) {
        return;
    }
    let (arguments, item) = text.split_once("\n====\n").unwrap_or((text, "async fn f(_: u8) {}"));
    let Ok(item) = item.parse::<TokenStream>() else { return };
    let derived = crate::failure::derive(item.clone());
    assert!(is_unsafe(&item) || !is_unsafe(&derived), "{derived}");
    let Ok(arguments) = arguments.parse::<TokenStream>() else { return };
    let given = is_unsafe(&arguments) || is_unsafe(&item);
    let made = crate::subscriber::attribute(arguments, &item);
    assert!(!made.is_empty());
    assert!(given || !is_unsafe(&made), "{made}");
}

fn is_unsafe(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(name) => name == "unsafe",
        TokenTree::Group(group) => is_unsafe(&group.stream()),
        _ => false,
    })
}

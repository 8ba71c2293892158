//! The annotated fn, as far as the macro has to know it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Meta, MetaList, Signature, Token, Visibility};

/// The body stays unparsed: it may use syntax newer than the parser.
pub(super) struct Function {
    pub(super) item: TokenStream,
    pub(super) attrs: Vec<Attribute>,
    pub(super) vis: Visibility,
    pub(super) sig: Signature,
}

impl Function {
    pub(super) fn parse(item: TokenStream) -> syn::Result<Self> {
        let source = item.clone();
        let parser = |input: ParseStream<'_>| {
            let attrs = input.call(Attribute::parse_outer)?;
            let vis = input.parse()?;
            if !starts_fn(input) {
                return Err(input.error("`#[subscriber]` goes on a free fn"));
            }
            let sig = input.parse()?;
            input.parse::<TokenStream>()?;
            Ok(Self { item, attrs, vis, sig })
        };
        parser.parse2(source)
    }

    /// The conditions of the fn. The generated code must have the same.
    pub(super) fn cfgs(&self) -> Vec<&Attribute> {
        self.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect()
    }

    /// The lints that the fn allows or expects. The generated code allows them too, because it
    /// names the same types. It also allows a deprecated fn: it is the app that calls it, not a
    /// user.
    pub(super) fn allowed(&self) -> TokenStream {
        let site = Span::mixed_site();
        let of = |attr: &Attribute| {
            if attr.path().is_ident("deprecated") {
                return Some(quote_spanned!(site=> #[allow(deprecated)]));
            }
            let Meta::List(MetaList { path, tokens, .. }) = &attr.meta else { return None };
            let lints = path.is_ident("allow") || path.is_ident("expect");
            lints.then(|| quote_spanned!(site=> #[allow(#tokens)]))
        };
        self.attrs.iter().filter_map(of).collect()
    }

    /// `#[doc(hidden)]`, if the fn has it.
    pub(super) fn hidden(&self) -> Option<&Attribute> {
        let is_hidden = |attr: &&Attribute| {
            attr.path().is_ident("doc")
                && attr.parse_args::<Ident>().is_ok_and(|argument| argument == "hidden")
        };
        self.attrs.iter().find(is_hidden)
    }

    /// A second `#[subscriber]` on the same fn.
    pub(super) fn second_attribute(&self) -> Option<&Attribute> {
        self.attrs.iter().find(|attr| {
            attr.path().segments.last().is_some_and(|segment| segment.ident == "subscriber")
        })
    }
}

fn starts_fn(input: ParseStream<'_>) -> bool {
    let constant = input.peek(Token![const])
        && (input.peek2(Token![fn])
            || input.peek2(Token![async])
            || input.peek2(Token![unsafe])
            || input.peek2(Token![extern]));
    let unsafe_fn =
        input.peek(Token![unsafe]) && (input.peek2(Token![fn]) || input.peek2(Token![extern]));
    let extern_fn = input.peek(Token![extern])
        && (input.peek2(Token![fn]) || input.peek2(syn::LitStr) && input.peek3(Token![fn]));
    constant || unsafe_fn || extern_fn || input.peek(Token![async]) || input.peek(Token![fn])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fn_that_is_hidden_from_the_docs_has_a_hidden_type_beside_it() {
        let hides = |attributes: &str| {
            let item = format!("{attributes} pub async fn confirm(_: u64) {{}}");
            let function = Function::parse(item.parse().unwrap()).unwrap();
            let beside = super::super::expand::beside(&function, &TokenStream::new());
            beside.to_string().replace(' ', "").contains("#[doc(hidden)]")
        };
        assert!(hides("#[doc(hidden)]") && hides("/// Confirms.\n #[doc(hidden)]"));
        assert!(!hides("/// Confirms, (hidden).\n") && !hides("#[doc(alias = \"hidden\")]"));
    }
}

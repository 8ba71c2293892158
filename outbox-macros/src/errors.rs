//! Collects mistakes, so that one compile shows all of them.

use quote::ToTokens;

/// The mistakes found so far. Dropping this unchecked panics, so that no path can forget to report
/// them.
#[derive(Default)]
pub(crate) struct Errors {
    found: Vec<syn::Error>,
    checked: bool,
}

impl Errors {
    /// Adds a mistake at the user's tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        self.found.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns all mistakes as one error.
    pub(crate) fn finish(mut self) -> syn::Result<()> {
        self.checked = true;
        let all = std::mem::take(&mut self.found).into_iter().reduce(|mut all, error| {
            all.combine(error);
            all
        });
        all.map_or(Ok(()), Err)
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        assert!(self.checked || std::thread::panicking(), "the errors were not checked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_reported() {
        let mut errors = Errors::default();
        errors.push(syn::Error::new(proc_macro2::Span::call_site(), "a"));
        errors.push(syn::Error::new(proc_macro2::Span::call_site(), "b"));
        assert_eq!(errors.finish().unwrap_err().into_iter().count(), 2);
    }

    #[test]
    #[should_panic(expected = "not checked")]
    fn mistakes_cannot_be_forgotten() {
        drop(Errors::default());
    }
}

//! `#[subscriber]`: parse, check, expand, or fall back.

mod args;
mod batch;
mod check;
mod expand;
mod fallback;
mod function;
mod options;
mod params;
mod queues;
mod retry;
mod returned;

use proc_macro2::TokenStream;

use crate::errors::Errors;
use function::Function;

pub(crate) fn attribute(args: TokenStream, item: &TokenStream) -> TokenStream {
    let function = match Function::parse(item.clone()) {
        Ok(function) => function,
        Err(error) => return fallback::item(item, &error),
    };
    let mut errors = Errors::default();
    let args = args::parse(args, &mut errors);
    let queues = args.queue.as_ref().map(|queue| queues::check(queue, &mut errors));
    let options = options::check(&args.settings, &mut errors);
    let params = check::function(&function, &options, &mut errors);
    check::transaction(&options, &params, &mut errors);
    if options.publish.is_some() {
        returned::check(&function.sig.output, &function.sig.ident, options.batch, &mut errors);
    }
    match errors.finish() {
        Ok(()) => expand::expand(&function, queues.as_ref(), &options, &params),
        Err(error) => fallback::function(&function, &error),
    }
}

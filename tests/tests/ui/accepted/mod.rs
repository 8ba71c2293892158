//! What `#[subscriber]` takes. Each file is as a crate of its own would be, warnings denied, and is
//! built with the tests: that costs a fraction of what a build for each costs.

use std::collections::BTreeSet;

/// Public, as they are in a crate. By a macro, which also keeps rustfmt from what is written oddly on purpose.
macro_rules! accepted {
    ($($file:ident)*) => {
        $(pub mod $file;)*

        #[test]
        fn what_is_right_is_accepted() {
            $($file::main();)*
            let listed: BTreeSet<String> = [$(stringify!($file)),*].map(String::from).into();
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/accepted");
            let found = std::fs::read_dir(folder).unwrap().map(|entry| {
                entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()
            });
            assert_eq!(found.filter(|file| file != "mod").collect::<BTreeSet<_>>(), listed);
        }
    };
}

accepted! {
    ack
    allowed_lints
    batch
    cfg
    failure
    hygiene_names
    hygiene_shadowed
    hygiene_shadowed_all
    in_fn_body
    in_macro_rules
    in_macro_rules_all
    in_macro_rules_fixed
    names_of_ours
    no_prelude
    options
    options_by_expression
    ordinary_fn
    origin
    parameters
    payload_borrowed
    plain_fn
    publish
    raw_payload
    retry
    retry_by_expression
    returns
    strict_lints
    typed_queue
}

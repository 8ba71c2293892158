//! The flags of which the page of the commands tells.

use outbox_tests::db::Db;

use crate::program::run;

const PAGE: &str = include_str!("../../../outbox/src/docs/cli.md");

async fn every_flag_of_the_page_is_one_of_its_command(db: &Db) {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut told = 0;
    for (command, _) in rows {
        let (flags, words): (Vec<_>, Vec<_>) =
            command.split(' ').partition(|word| word.starts_with("--"));
        let named = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let names: Vec<_> = words.iter().filter(named).copied().collect();
        let help = run(db, &[&names[..], &["--help"]].concat()).await.good();
        let has: Vec<_> = help.split_whitespace().map(|word| word.trim_matches(',')).collect();
        for flag in flags {
            assert!(has.contains(&flag), "{command}: {help}");
            told += 1;
        }
    }
    assert!(told > 10, "{told}");
}

outbox_tests::on_both!(every_flag_of_the_page_is_one_of_its_command);

//! Certificates, by the program `openssl`, which PostgreSQL's packages bring along.

use std::path::{Path, PathBuf};
use std::process::Command;

use outbox_tests::backend::unique;
use outbox_tests::server::scratch;

/// Certificates and keys in a folder that the server can read.
pub struct Certificates(PathBuf);

impl Certificates {
    /// An authority, and what it says of servers: `good` is `localhost`, `other` another
    /// host, `expired` was `localhost`. And a stranger, an authority of nobody.
    pub fn make() -> Self {
        let made = Self(scratch().join(unique("outbox-certificates")));
        std::fs::create_dir_all(&made.0).unwrap();
        for authority in ["authority", "stranger"] {
            made.openssl(&format!(
                "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN={authority} \
                 -keyout {authority}.key -out {authority}.crt"
            ));
        }
        made.server("good", "localhost", "20200101000000Z", "20990101000000Z");
        made.server("other", "other.example", "20200101000000Z", "20990101000000Z");
        made.server("expired", "localhost", "20200101000000Z", "20200102000000Z");
        made.hand_over();
        made
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn server(&self, name: &str, host: &str, from: &str, until: &str) {
        let config = format!(
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index-{name}\nserial=serial-{name}\n\
             new_certs_dir=.\ndefault_md=sha256\npolicy=any\nx509_extensions=host\n\
             [any]\ncommonName=supplied\n[host]\nsubjectAltName=DNS:{host}\n"
        );
        let write = |file: &str, text: &str| std::fs::write(self.0.join(file), text).unwrap();
        write(&format!("{name}.cnf"), &config);
        write(&format!("index-{name}"), "");
        write(&format!("serial-{name}"), "01\n");
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN={host} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "ca -batch -notext -config {name}.cnf -cert authority.crt -keyfile authority.key \
             -startdate {from} -enddate {until} -in {name}.csr -out {name}.crt"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split_whitespace()).current_dir(&self.0).output();
        let output = output.expect("`openssl` is needed; Debian's `postgresql` brings it along");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {told}");
    }

    /// Keys are the server's alone, or it refuses them.
    fn hand_over(&self) {
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            let status = command.args(arguments).arg(&self.0).status().unwrap();
            assert!(status.success(), "{program}");
        };
        run("chmod", &["-R", "go="]);
        let root = std::fs::metadata("/proc/self").unwrap();
        if std::os::unix::fs::MetadataExt::uid(&root) == 0 && Path::new("/etc/passwd").exists() {
            run("chown", &["-R", "postgres"]);
        }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

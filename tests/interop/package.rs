//! The Debian package installs and runs in a root that holds nothing but what it depends on.

use std::path::Path;
use std::process::Command;

/// Fills a root with the packages that a package depends on, as dpkg lists them.
const FILL: &str = r#"
root=$1; deb=$2
mkdir -p $root/var/lib/dpkg/info $root/var/lib/dpkg/updates $root/tmp
for name in $(dpkg-deb -f $deb Depends | tr ',' '\n' | sed 's/ *(.*//; s/ //g'); do
    dpkg -s $name >>$root/var/lib/dpkg/status
    echo >>$root/var/lib/dpkg/status
    dpkg -L $name | while read -r file; do
        if [ -f "$file" ]; then cp --parents -L "$file" $root/; fi
    done
done
"#;

fn output_of(command: &mut Command) -> String {
    let output =
        command.env("LINKGAUGE_STORE", "").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_package_runs_in_a_clean_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/deb");
    let package = output_of(Command::new(script).arg(env!("CARGO_BIN_EXE_linkgauge")).arg(directory.path()));
    let package = package.trim();
    output_of(Command::new("sh").args(["-eu", "-c", FILL, "fill"]).arg(&root).arg(package));
    let flag = format!("--root={}", root.display());
    output_of(Command::new("dpkg").args([&flag, "--log=/dev/null", "--install", package]));
    let run = |arguments: &[&str]| {
        output_of(Command::new("chroot").arg(&root).arg("/usr/bin/linkgauge").args(arguments))
    };
    assert_eq!(run(&["--version"]).trim(), concat!("linkgauge ", env!("CARGO_PKG_VERSION")));
    let measured = run(&["demo", "--quick", "--json", "/tmp/demo.json", "--html", "/tmp/demo.html"]);
    assert!(measured.contains("links measured in"), "{measured}");
    for file in [
        "man/man1/linkgauge-latency.1.gz",
        "bash-completion/completions/linkgauge",
        "doc/linkgauge/copyright",
    ] {
        assert!(root.join("usr/share").join(file).is_file(), "{file}");
    }
    assert!(root.join("tmp/demo.html").is_file());
}

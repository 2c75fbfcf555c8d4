//! The Debian package, the static program and the container run in a root that holds nothing but what they depend on.

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

/// The demo, with its results in these files.
fn demo<'a>(json: &'a str, html: &'a str) -> [&'a str; 6] {
    ["demo", "--quick", "--json", json, "--html", html]
}

/// A script of the tree.
fn packaging(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

#[test]
fn the_static_program_and_its_container_run_alone() {
    let built = output_of(Command::new(packaging("static")).arg("dev"));
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join(built.trim());
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(&binary, root.join("linkgauge")).unwrap();
    let measured = output_of(
        Command::new("chroot")
            .arg(&root)
            .arg("/linkgauge")
            .args(demo("/demo.json", "/demo.html"))
            .env("TMPDIR", "/"),
    );
    assert!(measured.contains("links measured in"), "{measured}");

    let place = |name: &str| directory.path().join(name).display().to_string();
    let flags = ["--root".to_owned(), place("images"), "--runroot".to_owned(), place("state")];
    let buildah = || {
        let mut command = Command::new("buildah");
        command.args(&flags).envs([("STORAGE_DRIVER", "vfs"), ("BUILDAH_ISOLATION", "chroot")]);
        command
    };
    let engine = format!("buildah {}", flags.join(" "));
    output_of(Command::new(packaging("container")).args([&binary, Path::new("linkgauge-test")]).envs([
        ("ENGINE", engine.as_str()),
        ("STORAGE_DRIVER", "vfs"),
        ("BUILDAH_ISOLATION", "chroot"),
    ]));
    let container = output_of(buildah().args(["from", "localhost/linkgauge-test"]));
    let configured =
        output_of(buildah().args(["inspect", "--format", "{{.OCIv1.Config}}", container.trim()]));
    assert!(configured.contains("serve tcp://0.0.0.0 udp://0.0.0.0"), "{configured}");
    let measured = output_of(
        buildah()
            .args(["run", container.trim(), "--", "/usr/bin/linkgauge"])
            .args(demo("/dev/null", "/dev/null")),
    );
    assert!(measured.contains("links measured in"), "{measured}");
}

#[test]
fn the_package_runs_in_a_clean_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let package =
        output_of(Command::new(packaging("deb")).arg(env!("CARGO_BIN_EXE_linkgauge")).arg(directory.path()));
    let package = package.trim();
    output_of(Command::new("sh").args(["-eu", "-c", FILL, "fill"]).arg(&root).arg(package));
    let flag = format!("--root={}", root.display());
    output_of(Command::new("dpkg").args([&flag, "--log=/dev/null", "--install", package]));
    let run = |arguments: &[&str]| {
        output_of(Command::new("chroot").arg(&root).arg("/usr/bin/linkgauge").args(arguments))
    };
    assert_eq!(run(&["--version"]).trim(), concat!("linkgauge ", env!("CARGO_PKG_VERSION")));
    let measured = run(&demo("/tmp/demo.json", "/tmp/demo.html"));
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

//! A program that is built with `panic = "abort"`. Test programs never are, whatever their profile says, so the one test
//! that needs it builds an example of its own: the libraries are those of this program, only the example is compiled.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const NAME: &str = "aborts_on_panic";

/// Built once; where it is.
pub(crate) fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build)
}

fn build() -> PathBuf {
    // TARGET/debug/deps/blocking-0123456789abcdef
    let here = std::env::current_exe().expect("this program");
    let folder = here.ancestors().nth(2).expect("the folder of the profile");
    let target = folder.parent().expect("the target folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let features = [(cfg!(feature = "blocking"), "blocking"), (cfg!(feature = "async"), "async")];
    let features: Vec<&str> = features.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
    let done = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["rustc", "--quiet", "--profile", profile, "--features", &features.join(","), "--example", NAME])
        .arg("--target-dir")
        .arg(target)
        .args(["--", "-C", "panic=abort"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    folder.join("examples").join(NAME)
}

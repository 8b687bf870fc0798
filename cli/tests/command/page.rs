//! `docs/cli.md` says what is true: each of its commands is run.

use std::process::Command;

use super::place::Place;

const PAGE: &str = include_str!("../../../docs/cli.md");

#[test]
fn the_page_names_every_command_of_the_help() {
    let help = Place::empty("help").venturi(&["--help"]).out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> =
        listed.filter_map(|line| line.split_whitespace().next()).filter(|it| *it != "help").collect();
    assert!(names.len() > 10, "{help}");
    for name in names {
        assert!(PAGE.contains(&format!("| `venturi {name}`")), "{name}");
    }
}

/// What stands in blocks of `sh`, in order, with the codes after `# exit`.
fn commands() -> Vec<(&'static str, Vec<i32>)> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in PAGE.lines() {
        match line.strip_prefix("```") {
            Some(language) => inside = language == "sh",
            None if inside && !line.trim().is_empty() => {
                let (command, remark) = line.split_once('#').unwrap_or((line, ""));
                let codes = remark.split_once("exit ").map_or("0", |(_, codes)| codes);
                let codes = codes.split(" or ").map(|code| code.trim().parse().expect("a number")).collect();
                found.push((command.trim(), codes));
            }
            None => {}
        }
    }
    found
}

#[test]
fn each_command_of_the_page_does_what_it_says() {
    let place = Place::empty("page");
    let folder = std::env::temp_dir().join(format!("{}_page", place.schema));
    std::fs::create_dir(&folder).expect("a folder");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_venturi"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary.parent().expect("a folder").display());
    // The page speaks of the schema that everybody has; here each test has its own.
    let alias = format!("set -o pipefail; venturi() {{ command venturi --schema {} \"$@\"; }}; ", place.schema);
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    for (command, codes) in commands {
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(format!("{alias}{command}")).current_dir(&folder);
        let done = shell.env("PATH", &path).env("DATABASE_URL", &place.url).output().expect("a shell");
        let code = done.status.code().unwrap_or(-1);
        assert!(codes.contains(&code), "{command}: {code}\n{}", String::from_utf8_lossy(&done.stderr));
    }
    std::fs::remove_dir_all(folder).expect("it is there");
}

//! Derives cases of whole commands from other cases. Files, changes and tool are the same. The
//! cache is asked to run a shell, which runs the tool and writes its exit code to a file. For
//! example, `larder cc -c x.c` becomes `larder run -- sh -c '"$@"; …' sh gcc -c x.c`.
//!
//! Unaware of: what the cases test.

use crate::case::Case;
use crate::step::{Line, Step};

/// The classes in which a stale result would be wrong.
const CLASSES: &[&str] = &["A", "B"];

/// Runs the tool, and writes its exit code to the file `ended`.
const SHELL: &str = r#""$@"; end=$?; echo "$end" >ended; exit "$end""#;
/// Runs the tool through the cache, inside of a command that is also run through the cache.
const NESTED: &str = r#"$WRAP "$@"; end=$?; echo "$end" >ended; exit "$end""#;

/// Returns the case as a whole command (class W), and as one with the cache inside as well (class
/// N). Returns nothing for other classes, and for cases that run whole commands already.
pub fn carried_over(case: &Case) -> Vec<Case> {
    if !CLASSES.contains(&case.class()) || case.uses_any() {
        return Vec::new();
    }
    let as_part = |class: &str, shell: &str, nested: bool| {
        let mut carried = case.clone();
        carried.name = format!("{class}/{}", case.name);
        for step in &mut carried.steps {
            carry(step, case, shell, nested);
        }
        carried
    };
    vec![as_part("W", SHELL, false), as_part("N", NESTED, true)]
}

fn carry(step: &mut Step, case: &Case, shell: &str, nested: bool) {
    let compilers = case.compilers[0];
    step.how.line = match &step.how.line {
        Line::Tool(words) => {
            let tool = words.iter().enumerate().map(|(at, word)| match (at, word.as_str()) {
                (0, "cc") => compilers.cc,
                (0, "c++") => compilers.cxx,
                (_, word) => word,
            });
            Line::Any(["sh", "-c", shell, "sh"].into_iter().chain(tool).map(str::to_owned).collect())
        }
        Line::Script(text) if nested => Line::Script(format!("$RUN sh -c {}", quoted(text))),
        // Without the cache inside, the variables name the bare tools.
        Line::Script(text) => {
            let bare = format!("CC={} CXX={} WRAP=", compilers.cc, compilers.cxx);
            Line::Script(format!("{bare}; export CC CXX WRAP; $RUN sh -c {}", quoted(text)))
        }
        Line::Any(words) => Line::Any(words.clone()),
    };
}

/// Quotes a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::case;

    #[test]
    fn tools_and_scripts_become_parts_of_a_shell_command() {
        let told = case("A/x").cmd("cc -c x.c").cold().sh("$CC -c 'x y.c'").then("a script", crate::change::nothing());
        let carried = carried_over(&told);
        let names: Vec<&str> = carried.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["W/A/x", "N/A/x"]);
        let Line::Any(words) = &carried[0].steps[0].how.line else { panic!("no command") };
        assert_eq!(words[3..], ["sh", "gcc", "-c", "x.c"]);
        let Line::Script(text) = &carried[1].steps[1].how.line else { panic!("no script") };
        assert_eq!(text, r"$RUN sh -c '$CC -c '\''x y.c'\'''");
        assert!(carried_over(&case("C/x").cmd("cc").cold()).is_empty());
    }
}

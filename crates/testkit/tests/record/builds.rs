//! Records builds that use larder: the outcomes, their first causes, and the comparison of two
//! records.

use larder_testkit::{Place, Ran, larder, probe_skip};
use serde_json::Value;

const MAKEFILE: &str = "\
OBJECTS = a.o b.o c.o d.o
prog: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)
%.o: %.c
\t$(CC) -c -O1 -o $@ $<
clean:
\trm -f prog *.o
";

/// Writes a project of four sources, of which three include one header.
fn project(place: &Place) {
    place.put("Makefile", MAKEFILE);
    place.put("shared.h", "int shared(void);\n");
    for name in ["a", "b", "c"] {
        place.put(&format!("{name}.c"), format!("#include \"shared.h\"\nint {name}(void) {{ return 1; }}\n"));
    }
    place.put("d.c", "int main(void) { return 0; }\n");
}

fn word(place: &Place, words: &[&str]) -> Ran {
    let whole: Vec<&std::ffi::OsStr> =
        [larder().as_os_str()].into_iter().chain(words.iter().map(std::ffi::OsStr::new)).collect();
    place.run(&whole).run().ends(0)
}

fn record(place: &Place, name: &str) -> Value {
    place.settle();
    let cc = format!("CC={} gcc", larder().display());
    word(place, &["record", "--name", name, "--", "make", "-j2", &cc]);
    serde_json::from_str(&word(place, &["record", "show", name, "--json"]).stdout).expect("not JSON")
}

#[test]
fn outcomes_and_first_causes() {
    probe_skip!(larder_testkit::has("gcc") && larder_testkit::has("make"), "gcc or make is not installed");
    let place = Place::new();
    project(&place);
    let cold = record(&place, "cold");
    assert_eq!(cold["explained"]["counts"]["miss"], 5, "{}", cold["explained"]["causes"]);
    word(&place, &["explain", "--last-build"]).out_has("nothing was recorded for it");
    word(&place, &["stats", "--last-build"]).out_has("cold");

    word(&place, &["run", "--", "make", "clean"]);
    let warm = record(&place, "warm");
    assert_eq!(warm["explained"]["counts"]["hit"], 5, "{}", warm["explained"]["causes"]);
    word(&place, &["explain", "--last-build"]).out_has("every command was a hit");
    let phases = &warm["explained"]["actions"][0]["phases"];
    assert!(phases["lookup"].as_u64() > Some(0) && phases["place"].as_u64() > Some(0), "{phases}");

    word(&place, &["run", "--", "make", "clean"]);
    place.put("shared.h", "int shared(void); /* another */\n");
    let changed = record(&place, "changed");
    let counts = &changed["explained"]["counts"];
    assert_eq!((&counts["miss"], &counts["hit"]), (&3.into(), &2.into()), "{}", changed["explained"]["causes"]);
    word(&place, &["explain", "--last-build"]).out_has("shared.h").out_has("3 miss");

    if cold["runs"][0]["end"]["not_traced"].is_string() {
        eprintln!("skipped: processes cannot be followed here");
        return;
    }
    assert_eq!(cold["explained"]["actions_without_process"], 0);
    let of = |json: &Value, name: &str, outcome: &str| {
        let all = json["explained"]["processes"].as_array().expect("not a list");
        all.iter().filter(|process| process["name"] == name && process["outcome"] == outcome).count()
    };
    assert_eq!((of(&cold, "cc1", "miss"), of(&warm, "cc1", "hit"), of(&warm, "larder gcc", "hit")), (4, 0, 5));
    let compared = word(&place, &["compare", "cold", "warm", "--json"]).stdout;
    let compared: Value = serde_json::from_str(&compared).expect("not JSON");
    assert_eq!(compared["actions"]["count"], 5, "{compared}");
    assert_eq!(compared["measures"][0]["verdict"], "cannot tell", "one run for each side is not enough for a verdict");
}

#[test]
fn a_bypass_is_grouped_by_its_reason() {
    let place = Place::new();
    let tool = place.tool("bin/mystery", "exit 0");
    let script = format!("{0} {tool}; {0} {tool}", larder().display());
    word(&place, &["record", "--", "sh", "-c", &script]);
    word(&place, &["explain", "--last-build"]).out_has("2 bypass").out_has("does not know this tool");
    word(&place, &["explain", "--last-build", "--markdown"]).out_has("| bypass | 2 |");
}

trait Has {
    fn out_has(self, piece: &str) -> Self;
}

impl Has for Ran {
    #[track_caller]
    fn out_has(self, piece: &str) -> Self {
        assert!(self.stdout.contains(piece), "{piece}: {}", self.stdout);
        self
    }
}

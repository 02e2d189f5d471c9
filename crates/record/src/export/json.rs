//! Everything that can be computed from a record, as one JSON object for programs.

use serde_json::{Value, json};

use crate::critical::critical_path;
use crate::directory::Record;
use crate::processes::processes;
use crate::summary::{Counts, causes, kinds, phases};

/// Returns the record: header, context and runs, and for the explaining run its processes, causes,
/// tables and critical path.
pub fn json(record: &Record) -> Value {
    let runs: Vec<_> = record.runs.iter().map(|run| &run.run).collect();
    let explained = record.explaining().map(|run| {
        let found = processes(run);
        let path: Vec<Value> = critical_path(&found.all)
            .iter()
            .map(|stretch| json!({ "process": stretch.process, "from_ns": stretch.from_ns, "to_ns": stretch.to_ns }))
            .collect();
        let all: Vec<Value> = found
            .all
            .iter()
            .map(|process| {
                json!({
                    "pid": process.pid,
                    "parent": process.parent,
                    "name": process.label,
                    "argv": process.programs.last().map(|program| &program.argv),
                    "exe": process.programs.last().map(|program| &program.exe),
                    "cwd": process.cwd,
                    "start_ns": process.start_ns,
                    "end_ns": process.end_ns,
                    "exit_code": process.code,
                    "usage": process.own,
                    "threads": process.threads,
                    "outcome": process.outcome.name(),
                    "action": process.action,
                })
            })
            .collect();
        json!({
            "run": run.run.number,
            "wall_ns": found.wall_ns,
            "counts": Counts::of(&run.actions),
            "causes": causes(&run.actions),
            "kinds": kinds(&found),
            "phases": phases(&run.actions).into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "actions": run.actions,
            "actions_without_process": found.strangers,
            "processes": all,
            "spans": run.spans,
            "critical_path": path,
            "damaged_lines": run.damaged_lines,
        })
    });
    json!({ "record": record.header, "context": record.context, "runs": runs, "explained": explained })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::a_run;

    #[test]
    fn all_of_it() {
        let record = Record { runs: vec![a_run()], ..Record::default() };
        let json = json(&record);
        assert_eq!(json["explained"]["processes"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["explained"]["counts"]["miss"], 1);
        assert_eq!(json["runs"][0]["end"]["wall_ns"], 95_000_000);
    }
}

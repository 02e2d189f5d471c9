//! Writes an artificial record of a build of any size: make, and below it compilers with the
//! processes that they start.

use std::fmt::Write;
use std::path::{Path, PathBuf};

const MS: u64 = 1_000_000;
const JOBS: usize = 8;

/// Writes a record with about this many processes below `directory`, and returns its path.
pub(crate) fn record(directory: &Path, processes: usize) -> PathBuf {
    let top = directory.join(format!("made-{processes}"));
    let run = top.join("runs/1");
    std::fs::create_dir_all(&run).expect("cannot create the directory");
    let mut events = String::from(
        "{\"e\":\"exec\",\"t\":0,\"pid\":1,\"exe\":\"/usr/bin/make\",\"argv\":[\"make\",\"-j8\"],\"cwd\":\"/src\"}\n",
    );
    let mut actions = String::new();
    let (mut lines, mut free) = (Vec::new(), [MS; JOBS]);
    let chains = processes / 4;
    for at in 0..chains {
        let job = (0..JOBS).min_by_key(|&job| free[job]).expect("there are no jobs");
        let begin = free[job];
        let took = (5 + at as u64 * 7 % 60) * MS;
        let pid = 2 + at as i32 * 4;
        let outcome = ["hit", "hit", "miss", "bypass"][at % 4];
        chain(&mut lines, pid, begin, took, at);
        let _ = writeln!(
            actions,
            "{{\"pid\":{},\"began_ns\":{},\"took_ns\":{took},\"outcome\":\"{outcome}\",\"reason\":\"\",\"tool\":\"gcc\",\
             \"source\":\"file{at}.c\",\"cause\":\"/src/header{}.h has other content\",\"key\":\"{at:032x}\",\
             \"phases\":{{\"lookup\":{MS}}}}}",
            pid + 1,
            1_000_000_000 + begin + MS,
            at % 5
        );
        free[job] = begin + took + MS;
    }
    lines.sort_by_key(|(t, _)| *t);
    lines.iter().for_each(|(_, line)| events.push_str(line));
    let end = free.iter().max().expect("there are no jobs") + 2 * MS;
    let _ = writeln!(events, "{{\"e\":\"exit\",\"t\":{end},\"pid\":1,\"code\":0,\"usage\":{{\"user_us\":1000}}}}");
    let header = format!(
        "{{\"format\":1,\"name\":\"made-{processes}\",\"larder\":\"0.1.0\",\"command\":[\"make\",\"-j8\"],\
         \"cwd\":\"/src\",\"runs\":1}}"
    );
    let state = format!(
        "{{\"number\":1,\"traced\":true,\"began_ns\":1000000000,\"end\":{{\"wall_ns\":{end},\"exit_code\":0,\
         \"usage\":{{\"user_us\":9000000,\"peak_bytes\":104857600}}}}}}"
    );
    let files = [
        (top.join("record.json"), header),
        (top.join("context.json"), "{\"machine\":{\"processors\":8,\"processor\":\"made up\"}}".to_owned()),
        (run.join("run.json"), state),
        (run.join("events.jsonl"), events),
        (run.join("actions.jsonl"), actions),
    ];
    for (path, text) in files {
        std::fs::write(path, text).expect("cannot write the file");
    }
    top
}

/// Adds a chain of processes: a shell, which starts larder, which starts gcc, which starts cc1.
fn chain(lines: &mut Vec<(u64, String)>, pid: i32, begin: u64, took: u64, at: usize) {
    let parents = [1, pid, pid + 1, pid + 2];
    let programs = ["/bin/sh", "/usr/bin/larder", "/usr/bin/gcc", "/usr/lib/gcc/cc1"];
    for (depth, (parent, exe)) in parents.into_iter().zip(programs).enumerate() {
        let (its, late) = (pid + depth as i32, depth as u64 * MS / 4);
        let (from, to) = (begin + late, begin + took - late);
        lines.push((from, format!("{{\"e\":\"fork\",\"t\":{from},\"parent\":{parent},\"pid\":{its}}}\n")));
        let name = exe.rsplit('/').next().expect("no file name");
        let argv = format!("[\"{name}\",\"-O2\",\"-I/src/include\",\"-c\",\"file{at}.c\",\"-o\",\"file{at}.o\"]");
        lines.push((
            from + 1,
            format!("{{\"e\":\"exec\",\"t\":{},\"pid\":{its},\"exe\":\"{exe}\",\"argv\":{argv}}}\n", from + 1),
        ));
        let cpu_us = if depth == 3 { took / 1200 } else { 200 };
        let usage =
            format!("{{\"user_us\":{cpu_us},\"system_us\":100,\"peak_bytes\":{},\"minor_faults\":900}}", 8 << 20);
        lines.push((to, format!("{{\"e\":\"exit\",\"t\":{to},\"pid\":{its},\"code\":0,\"usage\":{usage}}}\n")));
    }
}

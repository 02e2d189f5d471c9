//! The critical path: what the build waited for at each moment, computed from its end back to its
//! beginning.
//!
//! A process waits for the child that ended last. Before that child began, it waited for the child
//! that had ended last by then, and so on, down the tree. Between children it runs itself. Only a
//! change on this path makes the build faster.

use crate::processes::Process;

/// A stretch of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The index of the process.
    pub process: usize,
    /// The start, in nanoseconds since the run began.
    pub from_ns: u64,
    /// The end, in nanoseconds since the run began.
    pub to_ns: u64,
}

/// Returns the critical path of a whole run, in order of time. Stretches neither overlap nor leave
/// a gap.
pub fn critical_path(all: &[Process]) -> Vec<Stretch> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (at, process) in all.iter().enumerate() {
        if let Some(parent) = process.parent {
            children[parent].push(at);
        }
    }
    for those in &mut children {
        those.sort_unstable_by_key(|&at| all[at].end_ns);
    }
    let Some(root) = (0..all.len()).find(|&at| all[at].parent.is_none()) else { return Vec::new() };
    let mut path = Vec::new();
    // The work that is left: a process until a moment, or the rest of its parent before that. It is
    // a stack and not a recursion, because a process tree can be deep.
    let mut left = vec![(root, all[root].end_ns)];
    while let Some((process, until)) = left.pop() {
        let those = &children[process];
        let ended = those.partition_point(|&at| all[at].end_ns <= until);
        let start = all[process].start_ns;
        // Skips children of zero duration, which would be found again and again.
        let last = those[..ended].iter().rev().copied().find(|&at| all[at].start_ns < until && all[at].end_ns > start);
        match last {
            Some(child) => {
                push(&mut path, Stretch { process, from_ns: all[child].end_ns, to_ns: until });
                left.push((process, all[child].start_ns.max(start)));
                left.push((child, all[child].end_ns));
            }
            None => push(&mut path, Stretch { process, from_ns: start.min(until), to_ns: until }),
        }
    }
    path.reverse();
    path
}

fn push(path: &mut Vec<Stretch>, stretch: Stretch) {
    if stretch.from_ns < stretch.to_ns {
        path.push(stretch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: Option<usize>, start_ns: u64, end_ns: u64) -> Process {
        Process { parent, start_ns, end_ns, ..Process::default() }
    }

    fn shown(all: &[Process]) -> Vec<(usize, u64, u64)> {
        critical_path(all).iter().map(|s| (s.process, s.from_ns, s.to_ns)).collect()
    }

    #[test]
    fn the_last_to_end_is_waited_for() {
        // Processes 1 and 2 run in parallel. Process 3 starts after 2 has ended.
        let all = [
            process(None, 0, 100),
            process(Some(0), 10, 40),
            process(Some(0), 10, 60),
            process(Some(0), 62, 90),
            process(Some(3), 65, 80),
        ];
        let expected = [(0, 0, 10), (2, 10, 60), (0, 60, 62), (3, 62, 65), (4, 65, 80), (3, 80, 90), (0, 90, 100)];
        assert_eq!(shown(&all), expected);
    }

    #[test]
    fn it_covers_the_whole_run_once() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut all = vec![process(None, 0, 10_000)];
        for _ in 0..500 {
            let parent = random.usize(..all.len());
            let start = random.u64(all[parent].start_ns..=all[parent].end_ns);
            let end = random.u64(start..=10_000);
            all.push(process(Some(parent), start, end));
        }
        let path = critical_path(&all);
        assert_eq!((path[0].from_ns, path[path.len() - 1].to_ns), (0, 10_000));
        assert!(path.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
    }

    #[test]
    fn a_deep_tree_and_none() {
        let deep: Vec<Process> =
            (0..50_000).map(|at: usize| process(at.checked_sub(1), at as u64, 200_000 - at as u64)).collect();
        assert_eq!(critical_path(&deep).iter().map(|s| s.to_ns - s.from_ns).sum::<u64>(), 200_000);
        assert!(critical_path(&[]).is_empty());
    }
}

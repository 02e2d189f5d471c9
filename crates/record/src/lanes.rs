//! Lanes of a chart: bars that do not overlap share one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Assigns each process or span to a lane: the topmost one that is free when it begins. Returns the
/// lane of each, and the number of lanes. They come in the order in which they began, so a parent is
/// usually above its children.
pub(crate) fn lanes(all: impl Iterator<Item = (u64, u64)>) -> (Vec<usize>, usize) {
    let (mut free, mut taken, mut lanes) = (BinaryHeap::new(), BinaryHeap::new(), 0);
    let mut of = Vec::new();
    for (start_ns, end_ns) in all {
        while let Some(&Reverse((end, lane))) = taken.peek() {
            if end > start_ns {
                break;
            }
            taken.pop();
            free.push(Reverse(lane));
        }
        let lane = free.pop().map_or(lanes, |Reverse(lane)| lane);
        lanes = lanes.max(lane + 1);
        taken.push(Reverse((end_ns, lane)));
        of.push(lane);
    }
    (of, lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::processes;
    use crate::processes::tests::a_run;

    #[test]
    fn lines_do_not_overlap() {
        let found = processes(&a_run());
        let (of, lanes) = lanes(found.all.iter().map(|process| (process.start_ns, process.end_ns)));
        assert_eq!((of, lanes), (vec![0, 1, 1, 2], 3));
    }
}

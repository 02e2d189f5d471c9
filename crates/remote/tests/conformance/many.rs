//! Concurrent writers of one list: no record is lost, on any kind of service.

use crate::sample::{Run, manifest, names, options};
use futures::future::join_all;
use larder_model::{Digest, Manifest};
use larder_remote::{Remote, Remotes, Share, stacked};
use std::sync::Arc;

const WRITERS: u64 = 12;

/// Lets several writers add one record each to the same list at once. Each has its own `Remotes`,
/// as if on its own machine.
pub(crate) async fn none_is_lost(remote: Arc<dyn Remote>, seed: &str) {
    let weak = Digest::of(format!("{seed}/many").as_bytes());
    let all: Vec<Remotes> = (0..WRITERS).map(|number| alone(&remote, number + 1)).collect();
    let publish = |(number, remotes)| async move {
        let name = format!("W{number:02}");
        let bytes = manifest(&weak, &[Run { name: &name, exit_code: 0, output: None }]);
        let parsed = Manifest::decode(&bytes).expect("valid");
        let published = Remotes::publish(remotes, &parsed, |_: &Digest| None).await;
        assert!(published.failed.is_empty(), "{:?}", published.failed);
        assert_eq!(published.entries, 1);
    };
    join_all(all.iter().enumerate().map(publish)).await;
    let (found, _) = all[0].manifest(&weak).await.expect("read").expect("exists");
    let expected: Vec<String> = (0..WRITERS).map(|number| format!("W{number:02}")).collect();
    assert_eq!(names(&found), expected);
    let counted = |share| all.iter().map(|remotes| remotes.tally().of(share)).sum::<u64>();
    println!(
        "{}: {WRITERS} writers, {} conflicts, {} put back",
        remote.name(),
        counted(Share::Contended),
        counted(Share::PutBack)
    );
}

fn alone(remote: &Arc<dyn Remote>, seed: u64) -> Remotes {
    let options = options(seed, &[]);
    Remotes::of(vec![(stacked(remote.clone(), &options), false)], &options)
}

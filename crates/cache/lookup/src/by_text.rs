//! Finds entries that fail only because of the contents of headers, and that have the digest of
//! their preprocessed text. If the preprocessor gives the same text now, such an entry answers. For
//! example, only a build stamp changed, in a macro that this source does not use.
//!
//! The caller runs the preprocessor. The rest of an entry's observations must hold before and after
//! that run. Nothing is recorded after such a hit: the preprocessor may have looked for other files
//! than the recorded run, and an observer did not see it. So it runs again for the next hit, until
//! the compiler runs and is recorded.
//!
//! Unaware of: how the preprocessor is run, how a result is put in place.

use larder_compiler::{VARIABLES_BESIDE_TEXT, naming, text_decides};
use larder_model::{
    ActionResult, Digest, Entry, Fingerprint, Made, Manifest, ObservationSet, Origin, PreprocessedText,
};
use larder_portability::{Header, Reading, compiled_text};
use larder_store::{Checker, Effort, StatCache};

use crate::answer::{roots_digest, serves, with_checker};
use crate::{Place, Request, ResponseFilesOnDisk};

/// At most this many entries are compared with the text, the newest first.
const COMPARED_MAX: usize = 8;

/// The text is recorded after each of this many failures in a row, and then only after 4, 8, 16 and
/// so on, because the changes of the headers seem to count.
const FAILURES_FREE: u64 = 3;

/// Before a run shorter than this, in microseconds, the preprocessor is always tried.
const SHORT_US: u64 = 1_000_000;

/// How the preprocessor is run for a request, and how its output is compared.
pub struct TextRequest<'r> {
    request: &'r Request,
    /// The arguments for the compiler, except for `-E`.
    pub arguments: Vec<Vec<u8>>,
}

impl<'r> TextRequest<'r> {
    /// Returns `None` for a command whose result the preprocessed text does not decide.
    pub fn of(request: &'r Request, place: &Place) -> Option<TextRequest<'r>> {
        let words = request.action.argv.get(1..).filter(|_| request.family.is_gcc_or_clang())?;
        let is_set = |name: &&str| place.variable(name.as_bytes()).is_some();
        if !text_decides(words) || VARIABLES_BESIDE_TEXT.iter().any(is_set) {
            return None;
        }
        let mut arguments = naming(words, &ResponseFilesOnDisk(&request.action.cwd))?.preprocess;
        if request.invocation.depfile.is_some() {
            // The depfile is written behind the text, and so it counts as well.
            arguments.extend(["-MD", "-MF", "-"].map(|word| word.as_bytes().to_vec()));
        }
        Some(TextRequest { request, arguments })
    }

    /// Returns the digest of a preprocessed text, for a compile of which these headers may change.
    /// They are encoded paths. Returns `None` if a header may reach the result in another way.
    pub fn digest(&self, text: &[u8], headers: &[&[u8]]) -> Option<Digest> {
        let roots = &self.request.roots;
        let header = |encoded: &&[u8]| Some(Header { encoded: encoded.to_vec(), path: roots.decoded_path(encoded)? });
        let headers = headers.iter().map(header).collect::<Option<Vec<_>>>()?;
        let reading = Reading { roots, cwd: &self.request.action.cwd };
        compiled_text(text, &headers, reading)
    }
}

/// An entry that answers if the preprocessed text is the same.
pub struct ByText<'m> {
    entry: Entry<'m>,
    /// What must hold besides the text.
    set: ObservationSet<'m>,
    at_home: bool,
    /// The result as it is recorded.
    pub result: ActionResult<'m>,
    /// The text of the recorded run.
    text: PreprocessedText<'m>,
}

/// Returns the entries that answer if their preprocessed text is the same as now. All else that
/// they rely on holds. Returns none if the text is not asked for at present.
pub fn by_text<'m>(
    manifest: &Manifest<'m>,
    request: &Request,
    place: &Place,
    stat_cache: &StatCache,
) -> Vec<ByText<'m>> {
    let here = roots_digest(&request.roots);
    let with_text = manifest.entries.iter().filter_map(|entry| {
        let (set, mut result) = entry.open().ok()?;
        let text = result.text.take()?;
        Some(ByText { entry: entry.clone(), set, at_home: entry.made_in == here, result, text })
    });
    let mut found: Vec<ByText> = with_text.take(COMPARED_MAX).collect();
    // If the newest one has no digest, the text is not worth it at present.
    if found.first().is_none_or(|newest| newest.text.digest.is_none()) {
        return Vec::new();
    }
    found.iter_mut().for_each(|found| found.set.leave_out_contents(&found.text.headers));
    found.retain(|found| {
        pays(&found.text, found.entry.run_time_us)
            && serves(&found.entry, &here, request, place).is_ok()
            && found.still_holds(request, place, stat_cache)
    });
    found
}

/// Returns true if running the preprocessor in place of the tool saves time. The times are those of
/// one run each, so for a short run they say little.
fn pays(text: &PreprocessedText, run_time_us: u64) -> bool {
    text.digest.is_some() && (run_time_us < SHORT_US || text.took_us < run_time_us / 4 * 3)
}

/// Returns true if the preprocessed text is worth recording after this many failures in a row.
pub fn is_text_worth_it(failures: u64) -> bool {
    failures < FAILURES_FREE || failures.is_power_of_two()
}

impl ByText<'_> {
    /// Returns true if everything holds that the entry relies on besides the text.
    pub fn still_holds(&self, request: &Request, place: &Place, stat_cache: &StatCache) -> bool {
        holds(&self.set, &self.result, request, place, stat_cache, self.at_home)
    }

    /// Returns true if this preprocessed text is the one of the recorded run.
    pub fn has_text(&self, text: &[u8], request: &TextRequest) -> bool {
        let digest = request.digest(text, &self.text.headers);
        digest.is_some() && digest == self.text.digest
    }

    /// Returns how long the tool ran, in microseconds.
    pub fn run_time_us(&self) -> u64 {
        self.entry.run_time_us
    }

    /// Calls `record` with the entry as it is to be recorded again, because its text was the same
    /// after it had differed. Later failures are then the first ones again.
    pub fn without_failures(&self, weak: &Fingerprint, record: impl FnOnce(Entry)) {
        let Entry { observer, origin, run_time_us, made_in, bound, bound_by, .. } = self.entry;
        // An entry that was fetched would lose its signature.
        if self.text.failures == 0 || origin != Origin::Own {
            return;
        }
        let Ok((set, result)) = self.entry.open() else { return };
        let text = Some(PreprocessedText { failures: 0, ..self.text.clone() });
        let made = Made { made_in, bound: bound.map(|bound| (bound, bound_by.to_vec())) };
        let mut body = Vec::new();
        let result = ActionResult { text, ..result };
        record(Entry::new(weak, observer, run_time_us, &made, &set, &result, &mut body));
    }

    /// Returns a header that may have changed, for messages.
    pub fn header(&self, request: &Request) -> Vec<u8> {
        self.text.headers.first().and_then(|header| request.roots.decoded_path(header)).unwrap_or_default()
    }
}

/// Returns true if all of the observations of this result hold now.
pub fn holds(
    set: &ObservationSet,
    result: &ActionResult,
    request: &Request,
    place: &Place,
    stat_cache: &StatCache,
    at_home: bool,
) -> bool {
    let check = |checker: &Checker| checker.check(set, &mut Effort::default()).is_ok();
    with_checker(request, place, stat_cache, at_home, result, check)
}

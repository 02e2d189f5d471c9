//! Records the preprocessed text of a compile that was lost because only headers have changed. The
//! next compile can then be a hit if headers have changed and the text has not
//! (`larder_lookup::by_text`).
//!
//! Unaware of: how the text is compared.

use larder_compiler::{Stage, text_decides};
use larder_lookup::{TextRequest, holds, is_text_worth_it};
use larder_model::path::file_name;
use larder_model::{
    ActionResult, Bound, CHANGING_HEADERS_MAX, Digest, Entry, Made, Manifest, ObservationSet, Observer, Origin,
    PreprocessedText, contains_any,
};
use larder_observe::{Folded, Open};
use larder_relocate::sums_sources;

use super::compiler_parts::{assembled, is_gccs};
use super::entry::Run;
use super::hidden_arguments::HiddenArguments;
use super::outputs::StoredOutput;
use super::preprocess::preprocess_silently;

/// At most this many earlier entries are compared, the newest first.
const COMPARED_MAX: usize = 8;

/// A [`PreprocessedText`] with owned paths.
pub(super) struct RecordedText {
    headers: Vec<Vec<u8>>,
    failures: u64,
    took_us: u64,
    digest: Option<Digest>,
}

impl RecordedText {
    pub(super) fn borrowed(&self) -> PreprocessedText<'_> {
        let RecordedText { headers, failures, took_us, digest } = self;
        let headers = headers.iter().map(Vec::as_slice).collect();
        PreprocessedText { headers, failures: *failures, took_us: *took_us, digest: *digest }
    }

    fn of(text: &PreprocessedText) -> RecordedText {
        let PreprocessedText { headers, failures, took_us, digest } = text;
        let headers = headers.iter().map(|header| header.to_vec()).collect();
        RecordedText { headers, failures: *failures, took_us: *took_us, digest: *digest }
    }
}

impl Run<'_> {
    /// Returns the preprocessed text of a compile, if an earlier entry differs from it only by the
    /// contents of headers.
    pub(super) fn text(
        &self,
        set: &ObservationSet,
        made: &Made,
        result: &ActionResult,
        folded: &Folded,
        hidden: &HiddenArguments,
        outputs: &[StoredOutput],
    ) -> Option<RecordedText> {
        let is_silent = result.streams.iter().all(|stream| stream.size_bytes() == 0);
        let is_certain = !matches!(made.bound, Some((Bound::Chance | Bound::SeenOnce, _)));
        let is_compile = self.request.invocation.stage == Stage::Object;
        // The depfile does not say what the assembler has read.
        let is_observed = self.observer != Observer::Depfile && folded.foreign_program.is_none();
        if !is_compile || result.exit_code != 0 || !is_silent || !is_certain || !is_observed {
            return None;
        }
        let request = TextRequest::of(self.request, &self.context.place)?;
        let hidden = hidden.words();
        if !hidden.is_empty() && !text_decides(&[hidden, self.request.action.argv[1..].to_vec()].concat()) {
            return None;
        }
        let mut text = self.lost(set)?;
        if text.digest.is_some() || !is_text_worth_it(text.failures) {
            return Some(text);
        }
        let headers: Vec<&[u8]> = text.headers.iter().map(Vec::as_slice).collect();
        let paths = headers.iter().map(|header| self.request.roots.decoded_path(header));
        let paths = paths.collect::<Option<Vec<_>>>()?;
        let looked = &folded.seen.looked;
        let gcc_ran = looked.iter().any(is_gccs);
        // The preprocessor reads the headers that a precompiled header was made from, and the
        // compiler does not.
        let is_precompiled = |path: &[u8]| contains_any(path, &[".gch", ".pch", ".pcm"]);
        if looked.iter().any(|(path, looked)| looked.content && is_precompiled(path)) {
            return None;
        }
        if assembled(&paths, self.model).is_some()
            || !paths.iter().all(|path| self.opened_once(path))
            || !gcc_ran && self.sums_sources(outputs)
        {
            return None;
        }
        let preprocessed = preprocess_silently(self.command, &request.arguments)?;
        text.digest = Some(request.digest(&preprocessed.text, &headers)?);
        text.took_us = preprocessed.took_us;
        // The inputs must still be those that the compiler saw.
        let is_as_it_was = holds(set, result, self.request, &self.context.place, self.stat_cache, true);
        is_as_it_was.then_some(text)
    }

    /// Returns the headers that may change, and how often their text differed, without the text.
    fn lost(&self, set: &ObservationSet) -> Option<RecordedText> {
        let (store, weak) = (self.recorder.store(), &self.request.weak);
        let own = store.read_manifest(weak, false).ok().flatten();
        let handed_over = store.is_only_read().then(|| store.read_handed_over(weak, false).ok().flatten()).flatten();
        let manifests: Vec<Manifest> =
            handed_over.iter().chain(&own).filter_map(|file| Manifest::decode(&file.bytes).ok()).collect();
        let trust = &self.context.loaded.settings.remote_trust;
        let counts = |entry: &&Entry| {
            entry.origin.is_believed(trust) && (store.is_only_read() || entry.origin != Origin::HandedOver)
        };
        let entries = manifests.iter().flat_map(|manifest| &manifest.entries).filter(counts).take(COMPARED_MAX);
        let mut opened = entries.filter_map(|entry| entry.open().ok());
        let (mut changed, text) =
            opened.find_map(|(before, result)| Some((set.changed_contents(&before)?, result.text)))?;
        if changed.is_empty() {
            return text.as_ref().map(RecordedText::of);
        }
        let Some(text) = text else {
            let headers = changed;
            return within_limit(RecordedText { headers, failures: 0, took_us: 0, digest: None });
        };
        changed.retain(|header| !text.headers.contains(&header.as_slice()));
        // The text was compared, or would have been, if no other header has changed.
        let failures = text.failures + u64::from(changed.is_empty());
        let headers = text.headers.iter().map(|header| header.to_vec()).chain(changed).collect();
        within_limit(RecordedText { headers, failures, took_us: text.took_us, digest: None })
    }

    /// Returns true if the run opened the file once. Otherwise it may also have been included by the
    /// assembler (`.incbin`), for which the text has no line marker.
    fn opened_once(&self, path: &[u8]) -> bool {
        let Ok(file) = larder_sys::stat(path).map(|stat| stat.file_id()) else { return false };
        let is_it = |open: &&Open| {
            !open.failed
                && open
                    .identity
                    .map_or_else(|| file_name(open.path) == file_name(path), |opened| opened.file_id() == file)
        };
        self.model.opens.iter().filter(is_it).count() == 1
    }

    /// Returns true if an output holds checksums of sources, which change with each change of a
    /// header. clang writes them from DWARF 5 on.
    fn sums_sources(&self, outputs: &[StoredOutput]) -> bool {
        let contents = outputs.iter().filter_map(StoredOutput::content);
        let mut texts = contents.map(|content| content.searched(self.recorder, self.stat_cache));
        texts.any(|text| text.is_none_or(|text| sums_sources(&text)))
    }
}

fn within_limit(text: RecordedText) -> Option<RecordedText> {
    (text.headers.len() <= CHANGING_HEADERS_MAX).then_some(text)
}

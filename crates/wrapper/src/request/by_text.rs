//! Answers a request by its preprocessed text, if only headers have changed that may change without
//! effect (`larder_lookup::by_text`).
//!
//! Unaware of: how the text is compared, how a miss is run.

use larder_lookup::{TextRequest, by_text, relocated, secret};
use larder_model::{Entry, Manifest};
use larder_store::ManifestFile;

use super::miss::RunReason;
use crate::caller::caller;
use crate::hit::{NotPlaced, replay};
use crate::record::preprocess_silently;
use crate::recorder::daemon_record;
use crate::request_context::RequestContext;
use crate::run::{job_slot, parent_run};
use crate::stats::{Hit, report_hit};

/// Runs the preprocessor if an entry answers in case the text is the same. If one does, puts its
/// result in place and ends the process. Otherwise the tool must run, with the job slot that was
/// acquired for the preprocessor.
pub(super) fn answer(cx: RequestContext, reason: &mut RunReason) -> Result<(), NotPlaced> {
    let RequestContext { context, store, stat_cache, request } = cx;
    let settings = &context.loaded.settings;
    let is_first = reason.verify.is_none() && reason.trouble.is_none() && reason.token.is_none();
    // A run that contains us would have to know what the preprocessor looked for.
    if !is_first || reason.race.is_some() || settings.recache || settings.verify > 0 || parent_run::is_around() {
        return Ok(());
    }
    let Some(text_request) = TextRequest::of(request, &context.place) else { return Ok(()) };
    let own = store.read_manifest(&request.weak, false).ok().flatten();
    let handed_over =
        store.is_only_read().then(|| store.read_handed_over(&request.weak, false).ok().flatten()).flatten();
    let files: Vec<ManifestFile> = own.into_iter().chain(handed_over).collect();
    let mut candidates = Vec::new();
    for file in &files {
        let Ok(mut manifest) = Manifest::decode(&file.bytes) else { continue };
        manifest.keep_believed(&settings.remote_trust);
        candidates.extend(by_text(&manifest, request, &context.place, stat_cache));
    }
    if candidates.is_empty() {
        return Ok(());
    }
    let Some(mut token) = job_slot::take(cx, None).map(Box::new) else { return Ok(()) };
    let command = job_slot::as_set(settings, request.family, &request.command, &mut token);
    reason.token = Some(token);
    let preprocessed = preprocess_silently(&command, &text_request.arguments);
    let is_same = |text: &[u8]| {
        candidates
            .iter()
            .find(|found| found.has_text(text, &text_request) && found.still_holds(request, &context.place, stat_cache))
    };
    let Some((found, took_us)) = preprocessed.and_then(|run| Some((is_same(&run.text)?, run.took_us))) else {
        note_other_text(cx);
        return Ok(());
    };
    let Some(rewritten) = relocated::rewritten(&found.result, &request.roots, store, stat_cache) else { return Ok(()) };
    let result = relocated::apply(&found.result, &rewritten);
    context.recorded(|recording| {
        recording.result(&result);
        recording.after("preprocess", "preprocessed");
    });
    let code = replay(store, stat_cache, request, &result)?;
    context.phase("place");
    if files.iter().any(|file| file.overdue) {
        daemon_record::note_use(store, caller(settings), &request.weak);
    }
    if !settings.read_only && !store.is_only_read() {
        let record = |entry: Entry| drop(store.record(&request.weak, &secret::explained(request), entry));
        found.without_failures(&request.weak, record);
    }
    let header = found.header(request);
    let below_cwd = header.strip_prefix(&*context.place.cwd).and_then(|path| path.strip_prefix(b"/"));
    let shown = String::from_utf8_lossy(below_cwd.unwrap_or(&header)).into_owned();
    let run_time_us = found.run_time_us().saturating_sub(took_us);
    let hit = Hit { run_time_us, bytes: result.size_bytes(), at_ns: larder_sys::now_coarse_ns() };
    report_hit(cx, hit, &format!("{shown} changed, and the preprocessed text did not"));
    let _ = stat_cache.settle(store);
    // Other processes wait for the lock and for the job slot.
    drop((reason.turn.take(), reason.token.take()));
    larder_sys::end_process(code as u8);
}

/// Adds to the reason for the miss that the preprocessed text is another one.
fn note_other_text(RequestContext { context, .. }: RequestContext) {
    let mut cause = context.cause.borrow_mut();
    if !cause.is_empty() {
        cause.push_str(", and so has the preprocessed text");
    }
    context.recorded(|recording| {
        recording.phase("preprocess");
        recording.missed(&cause);
    });
}

//! A request, and what every step of answering it needs.

use larder_lookup::Request;
use larder_store::{StatCache, Store};

use crate::context::Context;

/// A request and what is needed to answer it.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) context: &'a Context,
    pub(crate) store: &'a Store,
    pub(crate) stat_cache: &'a StatCache,
    pub(crate) request: &'a Request,
}

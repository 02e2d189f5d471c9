//! Why a run was not recorded.

use larder_model::Unrecorded;
use larder_store::StoreError;

/// Why a run was not recorded: a reason with a path or a text, or an error of the store.
pub(crate) enum NotRecorded {
    Because(Unrecorded, Vec<u8>),
    Store(StoreError),
}

impl NotRecorded {
    /// Returns the text for the log.
    pub(crate) fn detail(&self) -> String {
        match self {
            NotRecorded::Because(_, path) => String::from_utf8_lossy(path).into_owned(),
            NotRecorded::Store(error) => error.to_string(),
        }
    }
}

impl From<StoreError> for NotRecorded {
    fn from(error: StoreError) -> Self {
        NotRecorded::Store(error)
    }
}

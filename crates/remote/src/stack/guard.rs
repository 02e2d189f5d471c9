//! Guard: runs a closure when it is dropped, unless it was disarmed. A dropped guard means that a
//! request was cancelled.

pub(super) struct Guard<F: FnMut()> {
    work: F,
    armed: bool,
}

impl<F: FnMut()> Guard<F> {
    pub(super) fn new(work: F) -> Self {
        Guard { work, armed: true }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl<F: FnMut()> Drop for Guard<F> {
    fn drop(&mut self) {
        if self.armed {
            (self.work)();
        }
    }
}

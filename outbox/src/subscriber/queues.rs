//! Queues, named one by one or together.

/// One queue name or several.
pub trait IntoQueues {
    /// The names, in the order given.
    fn into_queues(self) -> Vec<String>;
}

impl IntoQueues for &str {
    fn into_queues(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl IntoQueues for String {
    fn into_queues(self) -> Vec<String> {
        vec![self]
    }
}

impl<S: Into<String>, const N: usize> IntoQueues for [S; N] {
    fn into_queues(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<S: Into<String>> IntoQueues for Vec<S> {
    fn into_queues(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

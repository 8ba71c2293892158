//! The built-in strategies and their parameters.

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Duration,
    DurationOrZero,
    Durations,
    Count,
    /// A factor of at least 1. With less, the delays would shrink to nothing.
    Multiplier,
    /// A share from 0 to 2.
    Jitter,
}

pub(super) type Param = (&'static str, Kind);

pub(super) struct Strategy {
    pub(super) name: &'static str,
    /// The arguments of `new`, in their order.
    pub(super) required: &'static [Param],
    pub(super) optional: &'static [Param],
    /// True if the first one may be written without its name.
    pub(super) positional: bool,
    pub(super) example: &'static str,
}

pub(super) const LIMITS: [Param; 3] =
    [("jitter", Kind::Jitter), ("max_attempts", Kind::Count), ("max_total_delay", Kind::Duration)];

pub(super) const STRATEGIES: [Strategy; 5] = [
    Strategy {
        name: "Exponential",
        required: &[("initial", Kind::Duration)],
        optional: &[("multiplier", Kind::Multiplier), ("max_delay", Kind::Duration)],
        positional: false,
        example: "Exponential(initial = \"1s\")",
    },
    Strategy {
        name: "Linear",
        required: &[("initial", Kind::Duration), ("step", Kind::DurationOrZero)],
        optional: &[("max_delay", Kind::Duration)],
        positional: false,
        example: "Linear(initial = \"1s\", step = \"1s\")",
    },
    Strategy {
        name: "Constant",
        required: &[("delay", Kind::Duration)],
        optional: &[],
        positional: true,
        example: "Constant(\"5s\")",
    },
    Strategy {
        name: "Delays",
        required: &[("delays", Kind::Durations)],
        optional: &[],
        positional: true,
        example: "Delays([\"1s\", \"10s\"])",
    },
    Strategy {
        name: "NoRetry",
        required: &[],
        optional: &[],
        positional: false,
        example: "NoRetry",
    },
];

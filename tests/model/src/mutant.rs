//! Mistakes that the rules could make.

use crate::Property;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])* $name:ident breaks $property:ident),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $doc])* $name),+
        }

        impl Mutant {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The promise that it breaks first.
            #[must_use]
            pub fn breaks(self) -> Property {
                match self {
                    $(Self::$name => Property::$property),+
                }
            }
        }
    };
}

mutants! {
    /// The message is inserted on another connection.
    PublishOutsideTransaction breaks P1,
    /// The message is to be inserted after the commit, and the process dies.
    PublishAfterCommit breaks M1,
    /// The timer name is checked by a query, not by the index.
    TimerUnchecked breaks T3,
    CancelOfLeased breaks T4,
    ClaimBeforeDue breaks T1,
    ClaimOverLease breaks L1,
    ExpiredNotReclaimed breaks Z1,
    /// The lease begins with the transaction of the claim.
    LeaseBornOld breaks L2,
    WorkerAsToken breaks L3,
    ClaimUncounted breaks C1,
    /// A lease that ran out spends an attempt.
    CrashCountsAttempt breaks C2,
    AbandonWithoutToken breaks L4,
    /// The worker counts the lease from the claim's answer.
    DeadlineFromAnswer breaks H3,
    NoDeadlineCheck breaks H3,
    /// What waited too long is settled as failed.
    LateIsFailure breaks H2,
    AckBeforeHandler breaks D1,
    AckWithoutToken breaks L4,
    RetryWithoutToken breaks L4,
    BuryWithoutToken breaks L4,
    ReleaseWithoutToken breaks L4,
    ExtendWithoutToken breaks L4,
    /// The worker learns that the lease goes on, the row does not.
    ExtendForgotten breaks L2,
    /// A settlement without an answer runs the handler again.
    RunAgainUnanswered breaks H1,
    /// A drain gives back what still runs.
    ReleaseOfRunning breaks H4,
    ReleaseCounted breaks C1,
    CutOffWithoutToken breaks L4,
    /// The run that a drain dropped is forgotten.
    CutOffUncounted breaks C1,
    RetryUncounted breaks C2,
    /// One run more than there may be.
    AttemptTooMany breaks C2,
    /// The delay is counted from the claim.
    RetryTooEarly breaks T2,
    /// The letter first, then the row.
    BuryInTwoSteps breaks D2,
    LetterWithoutDelete breaks D2,
    DeleteWithoutLetter breaks D1,
    /// The row goes though the table refuses its letter.
    RefusedLetterDeletes breaks M1,
    /// What was not written is a delivery.
    KeptCounted breaks C1,
    /// Nothing tells any more that it was condemned unrun.
    CondemnedGivenBack breaks H5,
    /// Whoever was delivered too often is dead, whoever was to blame.
    InnocentsBuried breaks H5,
    /// A row delivered too often is given back as any other, does not tell any more that
    /// its leases ran out, and is taken for guilty though it never failed.
    SuspectsForgotten breaks H5,
    /// A letter whose timer lives is dropped.
    ReplayLosesOnConflict breaks R1,
    ReplayLeavesLetter breaks R1,
}

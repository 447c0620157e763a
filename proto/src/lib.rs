//! The wire between a coordinator and its workers: generated types in [`wire`], what they say in the domain's own words
//! in [`message`], and the only place where the two meet, [`convert`].

pub mod convert;
pub mod message;

/// Generated from `proto/iceferry/v1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod wire {
    tonic::include_proto!("iceferry.v1");

    // The contexts hold storage settings, and those hold credentials: printing shows where, never what.
    impl std::fmt::Debug for SourceContext {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("SourceContext").field("table", &self.table).finish_non_exhaustive()
        }
    }

    // Its literals may be secret.
    impl std::fmt::Debug for TableFilter {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("TableFilter").finish_non_exhaustive()
        }
    }

    impl std::fmt::Debug for TargetContext {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("TargetContext").field("table", &self.table).finish_non_exhaustive()
        }
    }
}

/// The largest message that either side sends or takes. gRPC's own limit is 4 MiB, which a task with many small delete
/// files passes; a message beyond this one can only be a task that the planner should have cut.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

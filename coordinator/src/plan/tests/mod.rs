//! Tests of planning as a whole.

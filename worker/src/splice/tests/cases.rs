//! Which way, case by case.

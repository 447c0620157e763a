//! Tests of planning as a whole, over tables whose manifests are real and whose data files are rows in memory.

mod consecutive;
mod filter;
mod history;
mod model;
mod net;
mod pass;
mod ranges;
mod reading;
mod rules;

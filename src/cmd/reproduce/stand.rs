//! What stands in the lab for the cells of a study.

use std::any::Any;

use linkgauge::endpoint::Endpoint;
use linkgauge::lab::LabError;
use linkgauge::paper::{Cell, Place};

/// Pieces of the lab that run until they are dropped.
pub type Standing = Vec<Box<dyn Any>>;

/// Starts what a cell needs; where its links lead.
pub fn start(cell: &Cell, place: &Place) -> Result<(Vec<Endpoint>, Standing), LabError> {
    Err(LabError(format!("{place}: the lab has no {}", cell.lab.as_deref().unwrap_or("such thing"))))
}

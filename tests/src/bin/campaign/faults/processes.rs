//! Processes: killed, stopped, told to finish.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use outbox_tests::clock;
use tokio::time::sleep;

use crate::workload::TTL;
use crate::world::World;

pub(super) async fn kill(world: &World, mut rng: Rng) -> Result<bool> {
    let seat = world.worker(&mut rng);
    Ok(world.fleet.signal(seat, "KILL").await?.is_some())
}

/// The process that comes in its place is a day ahead, or behind.
pub(super) async fn set_clock(world: &World, mut rng: Rng) -> Result<bool> {
    const DAY: i64 = 86_400;
    if clock::off_by(DAY).is_none() {
        return Ok(false);
    }
    let seat = world.worker(&mut rng);
    seat.off_by.store(if rng.bool() { DAY } else { -DAY }, Ordering::SeqCst);
    Ok(world.fleet.signal(seat, "KILL").await?.is_some())
}

/// Around the length of a lease.
pub(super) async fn stop(world: &World, mut rng: Rng) -> Result<bool> {
    let seat = world.worker(&mut rng);
    let stopped = world.fleet.signal(seat, "STOP").await?;
    sleep(TTL.mul_f64(rng.f64().mul_add(1.75, 0.25))).await;
    // If another process sits there by now, this does nothing to it.
    world.fleet.signal(seat, "CONT").await?;
    Ok(stopped.is_some())
}

pub(super) async fn drain(world: &World, mut rng: Rng) -> Result<bool> {
    let seat = world.worker(&mut rng);
    Ok(world.fleet.signal(seat, "TERM").await?.is_some())
}

pub(super) async fn drain_twice(world: &World, mut rng: Rng) -> Result<bool> {
    let seat = world.worker(&mut rng);
    let first = world.fleet.signal(seat, "TERM").await?;
    sleep(Duration::from_millis(rng.u64(1..400))).await;
    Ok(first.is_some() && first == world.fleet.signal(seat, "TERM").await?)
}

pub(super) async fn kill_producer(world: &World, mut rng: Rng) -> Result<bool> {
    let seat = world.producer(&mut rng);
    Ok(world.fleet.signal(seat, "KILL").await?.is_some())
}

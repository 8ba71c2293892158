//! The network between a process and the server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tokio::time::sleep;

use crate::fleet::Seat;
use crate::net::{End, Flow, Weather};
use crate::workload::TTL;
use crate::world::World;

/// Some of the processes, mostly workers, have this weather for a while.
async fn over(
    world: &World,
    rng: &mut Rng,
    share: f64,
    time: Duration,
    change: impl Fn(&mut Weather),
) -> Result<bool> {
    let mut hit = |seat: &&Arc<Seat>, share: f64| seat.app().is_some() && rng.f64() < share;
    let mut seats: Vec<_> = world.fleet.workers.iter().filter(|seat| hit(seat, share)).collect();
    seats.extend(world.fleet.producers.iter().filter(|seat| hit(seat, share / 3.0)));
    let nets = seats.iter().filter_map(|seat| seat.net.as_ref());
    let begun: Vec<_> = nets.map(|net| (net, net.begin(&change))).collect();
    sleep(time).await;
    begun.iter().for_each(|(net, fault)| net.end(*fault));
    Ok(!begun.is_empty())
}

/// What was sent arrives when its lease is over: for good tokens to stop.
pub(super) async fn hold(world: &World, mut rng: Rng) -> Result<bool> {
    let time = TTL + Duration::from_millis(rng.u64(100..1_500));
    over(world, &mut rng, 0.6, time, |weather| weather.up = Flow::Held).await
}

pub(super) async fn black_hole(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(300..5_000));
    let both = |weather: &mut Weather| (weather.up, weather.down) = (Flow::Held, Flow::Held);
    let hit = over(world, &mut rng, 0.4, time, both).await?;
    if rng.bool() {
        // Afterwards the connections are gone, too.
        reset(world, rng).await?;
    }
    Ok(hit)
}

/// The server does what it is told, and its answers come when the network is well again.
pub(super) async fn one_way(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(300..5_000));
    over(world, &mut rng, 0.4, time, |weather| weather.down = Flow::Held).await
}

pub(super) async fn reset(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(50);
    over(world, &mut rng, 0.5, time, |weather| weather.end = Some(End::Reset)).await
}

pub(super) async fn fin(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(50);
    over(world, &mut rng, 0.5, time, |weather| weather.end = Some(End::Fin)).await
}

pub(super) async fn late(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(1_000..4_000));
    let late = Flow::Late(Duration::from_millis(rng.u64(20..300)));
    let both = |weather: &mut Weather| (weather.up, weather.down) = (late, late);
    over(world, &mut rng, 0.5, time, both).await
}

pub(super) async fn drip(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(500..3_000));
    over(world, &mut rng, 0.4, time, |weather| weather.down = Flow::Drips).await
}

pub(super) async fn lose_answers(world: &World, mut rng: Rng) -> Result<bool> {
    let time = Duration::from_millis(rng.u64(100..600));
    over(world, &mut rng, 0.7, time, |weather| weather.end = Some(End::Answer)).await
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work on many things that does not depend upon its order, some of it at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` makes of each of the items, in their order, `threads` at a time.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut own = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else {
                return own;
            };
            own.push((place, work(item)));
        }
    };
    let mut results = thread::scope(|scope| {
        let threads = threads.clamp(1, items.len().max(1));
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        let joined = workers.into_iter().flat_map(|worker| match worker.join() {
            Ok(own) => own,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Vec<_>>()
    });
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        // The first ones take longest.
        let work = |item: &u64| {
            thread::sleep(std::time::Duration::from_micros(1000 - 10 * item));
            item * 2
        };
        let results = each(&items, 3, work);
        assert_eq!(results, (0..200).step_by(2).collect::<Vec<_>>());
        assert!(each(&[], 3, work).is_empty());
        assert_eq!(each(&items, 0, work), results);
    }
}

package core

import (
	"cmp"
	"slices"
	"time"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// metrics are the agent's counters, and every bound with what it bounds.
func (a *Agent) metrics() []world.Metric {
	s := &a.state
	files, broken := s.Manifests.Count()
	containers := 0
	for _, uid := range a.uids {
		containers += len(s.Pods[uid].Containers)
	}
	gauge := func(name, help string, v int) world.Metric {
		return world.Metric{Name: name, Help: help, Value: float64(v)}
	}
	counter := func(name, help string, v uint64) world.Metric {
		return world.Metric{Name: name, Help: help, Counter: true, Value: float64(v)}
	}
	metrics := []world.Metric{
		gauge("seedlet_pods", "Pods that the agent knows.", len(s.Pods)),
		gauge("seedlet_pods_wanted_max", "Bound on pods that are run.", s.PodsMax),
		gauge("seedlet_pods_refused", "Pods that are wanted but not run.", len(s.Refused)),
		gauge("seedlet_containers", "Containers in the runtime that belong to pods.", containers),
		gauge("seedlet_manifest_files", "Manifest files read, and pods of the manifest URL.", files),
		gauge("seedlet_manifest_files_broken", "Manifest files that give no pod.", broken),
		gauge("seedlet_manifest_files_max", "Bound on manifest files.", manifest.FilesMax),
		gauge("seedlet_images_awaited", "Images that pods wait for.", len(s.Images.Images)),
		gauge("seedlet_operations", "Operations in flight.", len(s.Ops.Records)),
		gauge("seedlet_operations_max", "Bound on operations in flight.", op.InFlightMax),
		gauge("seedlet_operations_high_water", "Most operations ever in flight.", s.Ops.HighWater),
		counter("seedlet_operations_total", "Operations begun.", uint64(s.Ops.Last)),
		counter("seedlet_operations_expired_total",
			"Operations whose deadline passed unanswered.", s.Ops.Expired),
		counter("seedlet_completions_dropped_total",
			"Completions that nobody waited for.", s.Ops.Dropped),
		counter("seedlet_relists_total", "Relists that succeeded.", s.Relist.Number),
		counter("seedlet_relists_failed_total", "Relists that failed.", s.Relist.Failures),
		counter("seedlet_events_taken_total", "Container events taken.", s.Events.Taken),
		counter("seedlet_event_streams_broken_total", "Streams of events that broke.",
			s.Events.Broken),
		counter("seedlet_steps_total", "Events taken.", s.Steps),
		counter("seedlet_logs_rotated_total", "Logs of containers rotated.", s.Rotation.Rotated),
		counter("seedlet_log_links_removed_total", "Links to logs that had gone, removed.",
			s.Links.Removed),
		counter("seedlet_orphans_removed_total",
			"Directories removed that no pod owned.", s.Sweep.Removed),
		gauge("seedlet_relist_age_seconds", "Time since the newest relist was asked for.",
			int(s.Last.Sub(timer.Later(s.Relist.AsOf, s.Booted))/time.Second)),
	}
	slices.SortFunc(metrics, func(x, y world.Metric) int { return cmp.Compare(x.Name, y.Name) })
	return metrics
}

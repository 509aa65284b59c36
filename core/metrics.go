package core

import (
	"cmp"
	"slices"
	"time"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/object"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// metrics are the agent's counters, and every bound with what it bounds.
func (a *Agent) metrics() []world.Metric {
	metrics := slices.Concat(a.podMetrics(), a.operationMetrics(), a.runtimeMetrics())
	if a.state.API {
		metrics = append(metrics, a.serverMetrics()...)
	}
	slices.SortFunc(metrics, func(x, y world.Metric) int { return cmp.Compare(x.Name, y.Name) })
	return metrics
}

func gauge(name, help string, v int) world.Metric {
	return world.Metric{Name: name, Help: help, Value: float64(v)}
}

func counter(name, help string, v uint64) world.Metric {
	return world.Metric{Name: name, Help: help, Counter: true, Value: float64(v)}
}

// podMetrics are about pods and where they come from.
func (a *Agent) podMetrics() []world.Metric {
	s := &a.state
	files, broken := s.Manifests.Count()
	containers := 0
	for _, uid := range a.uids {
		containers += len(s.Pods[uid].Containers)
	}
	return []world.Metric{
		gauge("seedlet_pods", "Pods that the agent knows.", len(s.Pods)),
		gauge("seedlet_pods_wanted_max", "Bound on pods that are run.", s.PodsMax),
		gauge("seedlet_pods_refused", "Pods that are wanted but not run.",
			len(s.Refused)+len(s.Rejected)),
		gauge("seedlet_containers", "Containers in the runtime that belong to pods.", containers),
		gauge("seedlet_manifest_files", "Manifest files read, and pods of the manifest URL.", files),
		gauge("seedlet_manifest_files_broken", "Manifest files that give no pod.", broken),
		gauge("seedlet_manifest_files_max", "Bound on manifest files.", manifest.FilesMax),
	}
}

// operationMetrics are about what the agent has begun, and about its steps.
func (a *Agent) operationMetrics() []world.Metric {
	s := &a.state
	return []world.Metric{
		gauge("seedlet_operations", "Operations in flight.", len(s.Ops.Records)),
		gauge("seedlet_operations_max", "Bound on operations in flight.", op.InFlightMax),
		gauge("seedlet_operations_high_water", "Most operations ever in flight.", s.Ops.HighWater),
		counter("seedlet_operations_total", "Operations begun.", uint64(s.Ops.Last)),
		counter("seedlet_operations_expired_total",
			"Operations whose deadline passed unanswered.", s.Ops.Expired),
		counter("seedlet_completions_dropped_total",
			"Completions that nobody waited for.", s.Ops.Dropped),
		counter("seedlet_steps_total", "Events taken.", s.Steps),
		gauge("seedlet_timers", "Components that wait for their time.", s.Timers.Len()),
	}
}

// runtimeMetrics are about the runtime, and what is tidied up on the node.
func (a *Agent) runtimeMetrics() []world.Metric {
	s := &a.state
	return []world.Metric{
		gauge("seedlet_images_awaited", "Images that pods wait for.", len(s.Images.Images)),
		gauge("seedlet_image_pulls", "Images that are being pulled.", s.Images.Turns.Flying),
		gauge("seedlet_image_pulls_max", "Bound on images that are being pulled; 0 is none.",
			s.Images.Limits.ParallelMax),
		gauge("seedlet_image_pulls_waiting", "Images that wait for their turn to be pulled.",
			len(s.Images.Turns.Waiting)),
		counter("seedlet_relists_total", "Relists that succeeded.", s.Relist.Number),
		counter("seedlet_relists_failed_total", "Relists that failed.", s.Relist.Failures),
		gauge("seedlet_relist_age_seconds", "Time since the newest relist was asked for.",
			int(s.Last.Sub(timer.Later(s.Relist.AsOf, s.Booted))/time.Second)),
		counter("seedlet_events_taken_total", "Container events taken.", s.Events.Taken),
		counter("seedlet_event_streams_broken_total", "Streams of events that broke.",
			s.Events.Broken),
		gauge("seedlet_log_rotations", "Logs that are looked at now.", len(s.Rotation.Jobs)),
		gauge("seedlet_log_rotations_max", "Bound on logs that are looked at at once.",
			s.Rotation.JobsMax),
		counter("seedlet_logs_rotated_total", "Logs of containers rotated.", s.Rotation.Rotated),
		counter("seedlet_log_links_removed_total", "Links to logs that had gone, removed.",
			s.Links.Removed),
		gauge("seedlet_orphans", "Directories and cgroups found that no pod may own.",
			len(s.Sweep.Found)),
		counter("seedlet_orphans_removed_total",
			"Directories and cgroups removed that no pod owned.", s.Sweep.Removed),
	}
}

// serverMetrics are about the API server.
func (a *Agent) serverMetrics() []world.Metric {
	s := &a.state
	failing, statuses, mirrors := 0, 0, 0
	for _, w := range s.Objects.Watches { //ordered: a count
		if w.Failing != nil {
			failing++
		}
	}
	for _, e := range s.Status.Entries { //ordered: a count
		if e.Op != 0 {
			statuses++
		}
	}
	for _, w := range s.Mirrors.Writes { //ordered: a count
		if w.Op != 0 {
			mirrors++
		}
	}
	return []world.Metric{
		gauge("seedlet_watches", "Objects and lists of the API server that are watched.",
			len(s.Objects.Watches)),
		gauge("seedlet_watches_max", "Bound on what is watched.", object.WatchesMax),
		gauge("seedlet_watches_failing", "Watches that see nothing at present.", failing),
		counter("seedlet_watch_news_dropped_total",
			"News of watches that had ended already.", s.Objects.Stray),
		gauge("seedlet_status_writes", "Statuses of pods that are being written.", statuses),
		counter("seedlet_statuses_written_total", "Statuses of pods written.", s.Status.Written),
		counter("seedlet_status_writes_failed_total",
			"Writes of statuses and removals of pods that failed.", s.Status.Failed),
		counter("seedlet_pods_deleted_total",
			"Pods removed from the API server once they had ended.", s.Status.Deleted),
		gauge("seedlet_mirror_writes", "Mirrors that are being made or removed.", mirrors),
	}
}

package core

import (
	"time"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/object"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
)

// ownMetrics are those that only this agent has: its counters, and every bound with what it
// bounds.
func (a *Agent) ownMetrics(m *metricList) {
	a.ownPodMetrics(m)
	a.operationMetrics(m)
	a.runtimeMetrics(m)
	if a.state.API {
		a.serverMetrics(m)
	}
}

// ownPodMetrics are about pods and where they come from.
func (a *Agent) ownPodMetrics(m *metricList) {
	s := &a.state
	files, broken := s.Manifests.Count()
	all := &s.Tally.Total
	m.gauge("seedlet_pods", "Pods that the agent knows.", len(s.Pods))
	m.gauge("seedlet_pods_wanted_max", "Bound on pods that are run.", s.PodsMax)
	m.gauge("seedlet_pods_refused", "Pods that are wanted but not run.",
		len(s.Refused)+len(s.Rejected))
	m.gauge("seedlet_containers", "Containers in the runtime that belong to pods.",
		all.Created+all.Runs+all.Unknown+all.Exited)
	m.gauge("seedlet_manifest_files", "Manifest files read, and pods of the manifest URL.", files)
	m.gauge("seedlet_manifest_files_broken", "Manifest files that give no pod.", broken)
	m.gauge("seedlet_manifest_files_max", "Bound on manifest files.", manifest.FilesMax)
}

// operationMetrics are about what the agent has begun, and about its steps.
func (a *Agent) operationMetrics(m *metricList) {
	s := &a.state
	m.gauge("seedlet_operations", "Operations in flight.", len(s.Ops.Records))
	m.gauge("seedlet_operations_max", "Bound on operations in flight.", op.InFlightMax)
	m.gauge("seedlet_operations_high_water", "Most operations ever in flight.", s.Ops.HighWater)
	m.counter("seedlet_operations_total", "Operations begun.", uint64(s.Ops.Last))
	m.counter("seedlet_operations_expired_total",
		"Operations whose deadline passed unanswered.", s.Ops.Expired)
	m.counter("seedlet_completions_dropped_total",
		"Completions that nobody waited for.", s.Ops.Dropped)
	m.counter("seedlet_steps_total", "Events taken.", s.Steps)
	m.gauge("seedlet_timers", "Components that wait for their time.", s.Timers.Len())
}

// runtimeMetrics are about the runtime, and what is tidied up on the node.
func (a *Agent) runtimeMetrics(m *metricList) {
	s := &a.state
	m.gauge("seedlet_images_awaited", "Images that pods wait for.", len(s.Images.Images))
	m.gauge("seedlet_image_pulls", "Images that are being pulled.", s.Images.Turns.Flying)
	m.gauge("seedlet_image_pulls_max", "Bound on images that are being pulled; 0 is none.",
		s.Images.Limits.ParallelMax)
	m.gauge("seedlet_image_pulls_waiting", "Images that wait for their turn to be pulled.",
		len(s.Images.Turns.Waiting))
	m.counter("seedlet_relists_total", "Relists that succeeded.", s.Relist.Number)
	m.counter("seedlet_relists_failed_total", "Relists that failed.", s.Relist.Failures)
	m.gauge("seedlet_relist_age_seconds", "Time since the newest relist was asked for.",
		int(s.Last.Sub(timer.Later(s.Relist.AsOf, s.Booted))/time.Second))
	m.counter("seedlet_events_taken_total", "Container events taken.", s.Events.Taken)
	m.counter("seedlet_event_streams_broken_total", "Streams of events that broke.",
		s.Events.Broken)
	m.gauge("seedlet_log_rotations", "Logs that are looked at now.", len(s.Rotation.Jobs))
	m.gauge("seedlet_log_rotations_max", "Bound on logs that are looked at at once.",
		s.Rotation.JobsMax)
	m.counter("seedlet_logs_rotated_total", "Logs of containers rotated.", s.Rotation.Rotated)
	m.counter("seedlet_log_links_removed_total", "Links to logs that had gone, removed.",
		s.Links.Removed)
	m.gauge("seedlet_orphans", "Directories and cgroups found that no pod may own.",
		len(s.Sweep.Found))
	m.counter("seedlet_orphans_removed_total",
		"Directories and cgroups removed that no pod owned.", s.Sweep.Removed)
}

// serverMetrics are about the API server.
func (a *Agent) serverMetrics(m *metricList) {
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
	m.gauge("seedlet_watches", "Objects and lists of the API server that are watched.",
		len(s.Objects.Watches))
	m.gauge("seedlet_watches_max", "Bound on what is watched.", object.WatchesMax)
	m.gauge("seedlet_watches_failing", "Watches that see nothing at present.", failing)
	m.counter("seedlet_watch_news_dropped_total",
		"News of watches that had ended already.", s.Objects.Stray)
	m.gauge("seedlet_status_writes", "Statuses of pods that are being written.", statuses)
	m.counter("seedlet_statuses_written_total", "Statuses of pods written.", s.Status.Written)
	m.counter("seedlet_status_writes_failed_total",
		"Writes of statuses and removals of pods that failed.", s.Status.Failed)
	m.counter("seedlet_pods_deleted_total",
		"Pods removed from the API server once they had ended.", s.Status.Deleted)
	m.gauge("seedlet_mirror_writes", "Mirrors that are being made or removed.", mirrors)
}

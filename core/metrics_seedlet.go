package core

import (
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pullrecord"
	"seedlet.dev/core/timer"
)

// addSeedletMetrics adds the metrics that only this agent has: its counters, and every bounded
// quantity with its bound.
func (a *Agent) addSeedletMetrics(m *metricList) {
	a.addPodCountMetrics(m)
	a.addOperationMetrics(m)
	a.addBudgetMetrics(m)
	a.addRuntimeMetrics(m)
	if a.state.HasAPIServer {
		a.addAPIServerMetrics(m)
	}
}

// addPodCountMetrics adds the metrics about pods and their sources.
func (a *Agent) addPodCountMetrics(m *metricList) {
	s := &a.state
	files, broken := s.Manifests.Count()
	all := &s.Metrics.Total
	m.addGauge("seedlet_pods", "Pods that the agent knows.", len(s.Pods))
	m.addGauge("seedlet_pods_wanted_max", "Bound on the pods that are run.", s.PodsMax)
	m.addGauge("seedlet_pods_refused", "Desired pods that are not run.",
		len(s.StaticRejections)+len(s.APIRejections))
	m.addGauge("seedlet_pods_set_aside",
		"Pods that are left as they are for a while because the agent has panicked over them.",
		len(s.SetAside))
	panics := 0
	for _, noted := range s.Boot.SetAside {
		panics += noted.Panics
	}
	m.addGauge("seedlet_pod_panics",
		"Panics of earlier runs of the agent over pods that are, or were, set aside in this run.", panics)
	m.addGauge("seedlet_containers", "Containers in the runtime that belong to pods.",
		all.CreatedContainers+all.RunningContainers+all.UnknownContainers+all.ExitedContainers)
	m.addGauge("seedlet_manifest_files", "Manifest files read, and pods of the manifest URL.", files)
	m.addGauge("seedlet_manifest_files_broken",
		"Manifest files from which no pod can be read.", broken)
	m.addGauge("seedlet_manifest_files_max", "Bound on manifest files.", manifest.FilesMax)
}

// addOperationMetrics adds the metrics about operations, steps and timers.
func (a *Agent) addOperationMetrics(m *metricList) {
	s := &a.state
	m.addGauge("seedlet_operations", "Operations in flight.", s.Ops.InFlight)
	m.addGauge("seedlet_operations_max", "Bound on operations in flight.", op.InFlightMax)
	m.addGauge("seedlet_operations_of_one",
		"Operations in flight of the component, pod, image or object that has the most.",
		s.Ops.InFlightOfOne())
	m.addGauge("seedlet_operations_of_one_max",
		"Bound on operations in flight of one pod, image or object.", budget.OperationsMax)
	m.addCounter("seedlet_operations_refused_total",
		"Operations that were not issued because too many were in flight.", s.Ops.Refused)
	m.addGauge("seedlet_operations_high_water", "Most operations ever in flight.", s.Ops.HighWater)
	m.addCounter("seedlet_operations_total", "Operations issued.",
		uint64(s.Ops.LastID)-s.Ops.Refused)
	m.addCounter("seedlet_operations_expired_total",
		"Operations that were not completed before their deadline.", s.Ops.Expired)
	m.addCounter("seedlet_completions_dropped_total",
		"Completions of operations that had expired or were abandoned.", s.Ops.Dropped)
	m.addCounter("seedlet_system_ooms_total",
		"Processes ended by the kernel because the machine was out of memory.", s.OOMs.Seen)
	m.addCounter("seedlet_system_ooms_without_event_total", "Processes ended by the kernel because "+
		"the machine was out of memory that have no Event of their own.", s.OOMs.OmittedTotal)
	m.addCounter("seedlet_steps_total", "Events handled.", s.Steps)
	m.addGauge("seedlet_timers", "Components whose plan has a timer.", s.Timers.Len())
}

// addBudgetMetrics adds the bounds of what one pod may cost, and how often pods were over them.
func (a *Agent) addBudgetMetrics(m *metricList) {
	for _, bound := range budget.Table {
		m.addGauge("seedlet_budget", "Bound on what one pod may cost, by its name; see budgets.md.",
			bound.Max, "name", bound.Name)
	}
	for _, bound := range budget.Table {
		refusals := a.state.Metrics.OverBudget[bound.Name]
		if bound.Name == budget.Operations.Name() {
			refusals = a.state.Ops.Refused
		}
		m.addCounter("seedlet_budget_refusals_total",
			"Times that a pod, or an operation, was refused because it was over a bound.", refusals,
			"name", bound.Name)
	}
}

// addRuntimeMetrics adds the metrics about images, relists, logs and housekeeping.
func (a *Agent) addRuntimeMetrics(m *metricList) {
	s := &a.state
	m.addGauge("seedlet_images_awaited", "Images that pods wait for.", len(s.Images.Images))
	m.addGauge("seedlet_image_pulls", "Images that are being pulled.", s.Images.PullQueue.InFlight)
	m.addGauge("seedlet_image_pulls_max", "Bound on images that are being pulled; 0 means unbounded.",
		s.Images.Limits.ParallelMax)
	m.addGauge("seedlet_image_pulls_waiting",
		"Images that wait for a pull to end before theirs starts.", len(s.Images.PullQueue.Waiting))
	m.addGauge("seedlet_pull_intents", "Files of this agent that say that an image is being pulled, "+
		"or may have been, also those that are being removed.", s.Images.Records.OwnIntents())
	m.addGauge("seedlet_pull_intents_max", "Bound on these files.", pullrecord.OwnMax)
	m.addCounter("seedlet_relists_total", "Relists that succeeded.", s.Relist.Completed)
	m.addCounter("seedlet_relists_failed_total", "Relists that failed.", s.Relist.Failures)
	m.addGauge("seedlet_relist_age_seconds", "Time since the newest successful relist was issued.",
		int(s.Now.Sub(timer.Later(s.Relist.AsOf, s.BootedAt))/time.Second))
	m.addCounter("seedlet_events_taken_total", "Container events handled.", s.EventStream.EventsTotal)
	m.addCounter("seedlet_event_streams_broken_total", "Streams of container events that broke.",
		s.EventStream.BrokenTotal)
	m.addGauge("seedlet_log_rotations",
		"Container logs whose directories are listed, or that are rotated.",
		len(s.LogRotation.Jobs))
	m.addGauge("seedlet_log_rotations_max",
		"Bound on container logs that are listed or rotated at a time.", s.LogRotation.JobsMax)
	m.addCounter("seedlet_logs_rotated_total", "Container logs rotated.", s.LogRotation.Rotated)
	m.addCounter("seedlet_log_links_removed_total", "Dangling links to container logs removed.",
		s.LogLinks.Removed)
	m.addGauge("seedlet_orphans", "Directories and cgroups found that may be orphaned.",
		len(s.Housekeeping.Candidates))
	m.addCounter("seedlet_orphans_removed_total",
		"Orphaned directories and cgroups removed.", s.Housekeeping.Removed)
}

// addAPIServerMetrics adds the metrics about the API server.
func (a *Agent) addAPIServerMetrics(m *metricList) {
	s := &a.state
	failing, statuses, mirrors := 0, 0, 0
	for _, w := range s.Objects.Watches { //ordered: a count
		if w.Failing != nil {
			failing++
		}
	}
	for _, e := range s.StatusWriter.Entries { //ordered: a count
		if e.Op != 0 {
			statuses++
		}
	}
	for _, w := range s.Mirrors.Writes { //ordered: a count
		if w.Op != 0 {
			mirrors++
		}
	}
	m.addGauge("seedlet_api_pods_pending",
		"Pods of a long list of the API server that are still to be applied.", len(s.PendingAPIPods))
	m.addGauge("seedlet_watches", "Watches of the API server, of lists or single objects.",
		len(s.Objects.Watches))
	m.addGauge("seedlet_watches_max", "Bound on watches.", budget.WatchesMax)
	m.addGauge("seedlet_watches_failing", "Watches that fail at present.", failing)
	m.addCounter("seedlet_watch_news_dropped_total",
		"Events of watches that had been stopped.", s.Objects.Dropped)
	m.addGauge("seedlet_status_writes", "Pod statuses that are being written.", statuses)
	m.addCounter("seedlet_statuses_written_total", "Pod statuses written.", s.StatusWriter.Written)
	m.addCounter("seedlet_status_writes_failed_total",
		"Writes of pod statuses and deletions of pods that failed.", s.StatusWriter.Failed)
	m.addCounter("seedlet_pods_deleted_total",
		"Pods deleted from the API server after they had terminated.", s.StatusWriter.Deleted)
	m.addGauge("seedlet_mirror_writes", "Mirror pods that are being created or deleted.", mirrors)
}

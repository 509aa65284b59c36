package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

func valuesOf(metrics []world.Metric) map[string]float64 {
	values := map[string]float64{}
	for _, m := range metrics {
		values[m.Name] = m.Value
	}
	return values
}

func TestSeedletMetricsAreWellFormed(t *testing.T) {
	agent := bootWithPods(map[string]string{"web.yaml": web}).agent
	if !slices.IsSortedFunc(agent.listMetrics(), func(x, y world.Metric) int {
		return strings.Compare(x.Name, y.Name)
	}) {
		t.Error("the metrics are not sorted")
	}
	var metrics metricList
	agent.addSeedletMetrics(&metrics)
	values := valuesOf(metrics)
	series := map[string]bool{}
	for _, m := range metrics {
		if key := fmt.Sprint(m.Name, m.Labels); series[key] {
			t.Errorf("two series are %s", key)
		} else {
			series[key] = true
		}
		if m.Counter != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s: counter %t", m.Name, m.Counter)
		}
		if !strings.HasPrefix(m.Name, "seedlet_") || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %q", m.Name, m.Help)
		}
		bounded := strings.TrimSuffix(strings.TrimSuffix(m.Name, "_max"), "_wanted")
		if _, found := values[bounded]; !found {
			t.Errorf("%s has no metric that it bounds", m.Name)
		}
	}
}

func TestAPIServerMetrics(t *testing.T) {
	n := bootWithPods(map[string]string{"web.yaml": web}, apiPodNamed("api", "u1"),
		withRequests(apiPodNamed("big", "u2"), "100", 0))
	n.markDeleted("default/api", 1)
	n.event(world.Event{Body: &world.ObjectGone{Watch: 999}}) // of a watch that was stopped
	n.apiServer.unavailable = true
	n.apiServer.put(apiPodNamed("new", "u3"))
	n.advance(10 * time.Second)
	values := valuesOf(n.agent.listMetrics())
	for name, least := range map[string]float64{
		"seedlet_statuses_written_total": 4, "seedlet_status_writes_failed_total": 1,
		"seedlet_pods_deleted_total": 1, "seedlet_watch_news_dropped_total": 1,
		"seedlet_watches": 3, "seedlet_watches_max": budget.WatchesMax, "seedlet_pods": 2,
		"seedlet_timers": 3, "seedlet_log_rotations_max": 1, "seedlet_image_pulls_max": 1,
	} {
		if value, there := values[name]; !there || value < least {
			t.Errorf("%s is %v, want at least %v", name, value, least)
		}
	}
	standalone := valuesOf(bootNode(nil).agent.listMetrics())
	if standalone["seedlet_watches_max"] != 0 {
		t.Error("a node without an API server has watches")
	}
}

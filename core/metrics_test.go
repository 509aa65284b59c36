package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

func valuesOf(metrics []world.Metric) map[string]float64 {
	values := map[string]float64{}
	for _, m := range metrics {
		values[m.Name] = m.Value
	}
	return values
}

func TestOwnMetricsAreWellFormed(t *testing.T) {
	agent := joined(map[string]string{"web.yaml": web}).agent
	if !slices.IsSortedFunc(agent.metrics(), func(x, y world.Metric) int {
		return strings.Compare(x.Name, y.Name)
	}) {
		t.Error("they are not sorted")
	}
	var metrics metricList
	agent.ownMetrics(&metrics)
	values := valuesOf(metrics)
	if len(values) < len(metrics) {
		t.Error("two have one name")
	}
	for _, m := range metrics {
		if m.Counter != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s: counter %t", m.Name, m.Counter)
		}
		if !strings.HasPrefix(m.Name, "seedlet_") || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %q", m.Name, m.Help)
		}
		bounded := strings.TrimSuffix(strings.TrimSuffix(m.Name, "_max"), "_wanted")
		if _, is := values[bounded]; !is {
			t.Errorf("%s bounds nothing", m.Name)
		}
	}
}

func TestMetricsCountWhatIsToldToTheServer(t *testing.T) {
	n := joined(map[string]string{"web.yaml": web}, boundPodOf("api", "u1"),
		asking(boundPodOf("big", "u2"), "100", 0))
	n.markDeleted("default/api", 1)
	n.event(world.Event{Body: &world.ObjectGone{Watch: 999}}) // of a watch that has ended
	n.server.away = true
	n.server.put(boundPodOf("new", "u3"))
	n.pass(10 * time.Second)
	values := valuesOf(n.agent.metrics())
	for name, least := range map[string]float64{
		"seedlet_statuses_written_total": 4, "seedlet_status_writes_failed_total": 1,
		"seedlet_pods_deleted_total": 1, "seedlet_watch_news_dropped_total": 1,
		"seedlet_watches": 3, "seedlet_watches_max": object.WatchesMax, "seedlet_pods": 2,
		"seedlet_timers": 3, "seedlet_log_rotations_max": 1, "seedlet_image_pulls_max": 1,
	} {
		if is, there := values[name]; !there || is < least {
			t.Errorf("%s is %v, want at least %v", name, is, least)
		}
	}
	if standalone := valuesOf(boot(nil).agent.metrics()); standalone["seedlet_watches_max"] != 0 {
		t.Error("a node without an API server has watches")
	}
}

package disk

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// A tree that can be walked within a minute is measured after that time; a larger one is not.
func TestMeasureDeepTree(t *testing.T) {
	for _, c := range []struct {
		names      int64
		takes      time.Duration
		unfinished bool
	}{
		{names: 500_000, takes: 10 * time.Second},
		{names: MeasurableNames, takes: time.Minute},
		{names: MeasurableNames + 1, takes: time.Minute, unfinished: true},
	} {
		w := newWorld(1, nil)
		w.disk.GrowTree("/data/tree", c.names, false)
		body, err := w.Begin(&world.MeasureTree{Path: "/data"})()
		measured, _ := body.(*world.TreeMeasured)
		took := w.agenda.Now().Sub(start).Round(time.Second)
		if err != nil || measured.Unfinished != c.unfinished || took != c.takes {
			t.Errorf("%d names: %+v after %v, %v", c.names, body, took, err)
		}
	}
}

// A removal that reaches its deadline has removed a part of the tree, and the next one continues.
func TestRemoveDeepTree(t *testing.T) {
	w := newWorld(1, nil)
	const names = 5_000_000 // more than in the two minutes of a call, less than in four
	w.disk.GrowTree("/data/deep/er", names, false)
	_, err := w.Begin(&world.RemoveTree{Path: "/data"})()
	left := w.disk.Names("/data")
	if !err.Has(world.KindTimeout) || left == 0 || left > names/2 {
		t.Fatalf("%v, %d of %d names are left", err, left, int64(names))
	}
	if _, err := w.Begin(&world.RemoveTree{Path: "/data"})(); err != nil || w.disk.Exists("/data") {
		t.Errorf("%v, %v", err, w.disk.Walk())
	}
}

package hostfile

import (
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// A file that cannot be read keeps its content, a file that does not exist is empty. Both are read
// again.
func TestFileThatCannotBeRead(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	effects, table := &op.Effects{}, &op.Table{}
	effects.Reset(table, now)
	f := &File{Path: "/etc/resolv.conf"}
	f.Plan(effects)
	if f.Op == 0 {
		t.Fatal("the file is not read at boot")
	}
	broken := world.Event{Time: now, Err: world.Errorf(world.KindInternal, "ReadFiles", "EIO")}
	if f.HandleCompletion(broken, effects) || f.Loaded || !f.NextAt.Equal(now.Add(retryDelay)) {
		t.Errorf("after a failure: %+v", f)
	}
	good := world.Event{Time: now, Body: &world.FilesRead{Files: []world.File{{Data: []byte("x")}}}}
	if !f.HandleCompletion(good, effects) || f.Text != "x" || f.LastError != "" {
		t.Errorf("after a success: %+v", f)
	}
	if f.HandleCompletion(broken, effects); f.Text != "x" || !f.Loaded {
		t.Errorf("after a failure the content is lost: %+v", f)
	}
	gone := world.Event{Time: now, Err: world.Errorf(world.KindNotFound, "ReadFiles", "none")}
	f.HandleCompletion(gone, effects)
	if f.Text != "" || !f.Loaded || !f.NextAt.Equal(now.Add(readPeriod)) {
		t.Errorf("after its removal: %+v", f)
	}
}

package hostfile

import (
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// What cannot be read keeps what it held; what is not there is empty; both are tried again.
func TestAFileThatCannotBeRead(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	out, table := &op.Out{}, &op.Table{}
	out.Begin(table, now)
	f := &File{Path: "/etc/resolv.conf"}
	f.Plan(out)
	if f.Op == 0 {
		t.Fatal("not read at boot")
	}
	broken := world.Event{Time: now, Err: world.Errorf(world.KindInternal, "ReadFiles", "EIO")}
	if f.Answered(broken, out) || f.Known || !f.NextAt.Equal(now.Add(retry)) {
		t.Errorf("after a failure: %+v", f)
	}
	good := world.Event{Time: now, Body: &world.FilesRead{Files: []world.File{{Data: []byte("x")}}}}
	if !f.Answered(good, out) || f.Text != "x" || f.Problem != "" {
		t.Errorf("after a success: %+v", f)
	}
	if f.Answered(broken, out); f.Text != "x" || !f.Known {
		t.Errorf("a failure took the content away: %+v", f)
	}
	gone := world.Event{Time: now, Err: world.Errorf(world.KindNotFound, "ReadFiles", "none")}
	if f.Answered(gone, out); f.Text != "" || !f.Known || !f.NextAt.Equal(now.Add(period)) {
		t.Errorf("once it is gone: %+v", f)
	}
}

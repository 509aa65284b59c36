package nodetest

import "testing"

func TestIsNodeDir(t *testing.T) {
	dir := t.TempDir()
	if isNodeDir(dir) {
		t.Error("isNodeDir reports true for an empty directory")
	}
	if _, err := writeNetwork(dir); err != nil {
		t.Fatal(err)
	}
	if !isNodeDir(dir) {
		t.Error("isNodeDir reports false for the directory of a node")
	}
}

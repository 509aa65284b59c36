package plan

import (
	"errors"
	"fmt"
	"path"
)

// FileWrite has each process of a container set the size of a file: the file grows or shrinks.
type FileWrite struct {
	Path string   `json:"path"` // in the container
	At   Duration `json:"at"`   // since the start of the process
	KiB  int      `json:"kiB"`
	// ThousandNames makes the path a deep tree with so many thousands of names of one empty file.
	ThousandNames int `json:"thousandNames,omitempty"`
	// ThousandFiles makes the path a deep tree with so many thousands of empty files.
	ThousandFiles int `json:"thousandFiles,omitempty"`
}

// FileWriteRange is a FileWrite that a container may have.
type FileWriteRange struct {
	Path          string `json:"path"`
	At            Span   `json:"at"`
	KiB           Count  `json:"kiB"`
	ThousandNames Count  `json:"thousandNames,omitempty"` // as in FileWrite
	ThousandFiles Count  `json:"thousandFiles,omitempty"` // as in FileWrite
	// Probability is the share of containers that have the write. A seed may leave all such writes
	// out. Absent: every container has it, in every seed.
	Probability *Share `json:"probability,omitempty"`
}

func (w *FileWrite) validate() error {
	if !path.IsAbs(w.Path) || min(w.KiB, w.ThousandNames, w.ThousandFiles) < 0 {
		return errors.New("want an absolute path, and 0 or more kiB, names and files")
	}
	return nil
}

// fileWrites generates the file writes of a container. Each entry has a stream of its own.
func (g *generator) fileWrites(pod string, b *BehaviourRange) []FileWrite {
	var writes []FileWrite
	weight := g.swarmWeight("writes", false)
	for i := range b.Writes {
		r, w := g.stream(fmt.Sprintf("writes %s %s %d", pod, b.Container, i)), &b.Writes[i]
		if w.Probability != nil && r.Float64() >= w.Probability.draw(r)*weight {
			continue
		}
		write := FileWrite{Path: w.Path, At: Duration(w.At.draw(r)), KiB: w.KiB.draw(r)}
		if w.ThousandNames.Most > 0 {
			write.ThousandNames = w.ThousandNames.draw(r)
		}
		if w.ThousandFiles.Most > 0 {
			write.ThousandFiles = w.ThousandFiles.draw(r)
		}
		writes = append(writes, write)
	}
	return writes
}

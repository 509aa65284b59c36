package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// idFile is a file of the machine that gives IDs to users or groups. Its lines are fields between
// colons, the name first.
type idFile struct {
	path          string
	first, length int // the fields of the first ID and of the number of IDs; 0: there is one ID
}

var idFiles = []idFile{{"etc/subuid", 1, 2}, {"etc/subgid", 1, 2}, {"etc/passwd", 2, 0},
	{"etc/group", 2, 0}}

// OverlappingIDs returns warnings about files of a machine that give users or groups IDs of the
// range that pods use, one for each file. A process of a pod could act as such a user. The kubelet
// does not look for them. Directory services are not asked.
func OverlappingIDs(root string, first uint32, length uint64) []string {
	var warnings []string
	for _, file := range idFiles {
		data, err := os.ReadFile(filepath.Join(root, file.path))
		if err != nil {
			continue // no user has IDs by it
		}
		example, count := "", 0
		for line := range strings.Lines(string(data)) {
			name, from, n, ok := file.parse(strings.TrimSpace(line))
			if !ok || name == subIDsUser && file.length > 0 ||
				from >= uint64(first)+length || from+n <= uint64(first) {
				continue
			}
			if count++; count == 1 {
				example = fmt.Sprintf("%s (%d-%d)", name, from, from+n-1)
			}
		}
		if count > 0 {
			if count > 1 {
				example += fmt.Sprintf(" and %d more", count-1)
			}
			warnings = append(warnings, fmt.Sprintf("/%s: the host IDs %d-%d of pods with user "+
				"namespaces are also those of %s; set IDs apart for the user %s", file.path, first,
				uint64(first)+length-1, example, subIDsUser))
		}
	}
	return warnings
}

// parse parses a line; false if it gives no IDs.
func (f *idFile) parse(line string) (name string, first, length uint64, ok bool) {
	fields := strings.Split(line, ":")
	if strings.HasPrefix(line, "#") || len(fields) <= max(f.first, f.length) {
		return "", 0, 0, false
	}
	first, err := strconv.ParseUint(fields[f.first], 10, 32)
	if err != nil {
		return "", 0, 0, false
	}
	if f.length == 0 {
		return fields[0], first, 1, true
	}
	length, err = strconv.ParseUint(fields[f.length], 10, 32)
	return fields[0], first, length, err == nil
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// environment is the environment of a process. The e2e tests read it from the log.
type environment struct {
	Env       []string            `json:"env"`
	Args      []string            `json:"args"`
	Dir       string              `json:"dir"`
	Host      string              `json:"host"`
	UID       int                 `json:"uid"`
	GID       int                 `json:"gid"`
	Groups    []int               `json:"groups"`
	Status    map[string]string   `json:"status"`    // of /proc/self/status
	Processes []string            `json:"processes"` // command lines of all visible processes
	Writable  bool                `json:"writable"`  // the root file system
	Paths     map[string]pathInfo `json:"paths"`     // by the paths among the arguments
}

// pathInfo describes a path.
type pathInfo struct {
	Mode     string   `json:"mode,omitempty"` // as "drwxr-xr-x"; empty if nothing exists there
	UID      uint32   `json:"uid"`
	GID      uint32   `json:"gid"`
	Tmpfs    bool     `json:"tmpfs"`
	Text     string   `json:"text,omitempty"`    // of a file or, up to a zero, of a block device
	Size     int64    `json:"size,omitempty"`    // of a block device or the file system, in bytes
	Entries  []string `json:"entries,omitempty"` // of a directory
	ReadOnly bool     `json:"readOnly"`
	Problem  string   `json:"problem,omitempty"`
}

// textMax bounds the text of a file in bytes.
const textMax = 4096

// report writes its environment as one line of JSON, with the paths among its arguments.
func report(args []string) (int, error) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	stay := flags.Bool("stay", false, "run until TERM afterwards")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	stop := stopRequested()
	f := environment{
		Env: os.Environ(), Args: os.Args, UID: os.Getuid(), GID: os.Getgid(),
		Status: statusOf("self"), Processes: processes(), Paths: map[string]pathInfo{},
	}
	f.Dir, _ = os.Getwd()        // empty if it cannot be determined
	f.Host, _ = os.Hostname()    // the same
	f.Groups, _ = os.Getgroups() // the same
	mark := filepath.Join("/", "written-by-report")
	if err := os.WriteFile(mark, nil, 0o644); err == nil {
		f.Writable = true
	}
	for _, at := range flags.Args() {
		f.Paths[at] = inspectPath(at)
	}
	line, err := json.Marshal(f)
	if err != nil {
		return 1, err
	}
	fmt.Println(string(line))
	if *stay {
		fmt.Println("asked to stop:", <-stop)
	}
	return 0, nil
}

// statusOf returns the lines of /proc/PROCESS/status.
func statusOf(process string) map[string]string {
	status := map[string]string{}
	data, _ := os.ReadFile("/proc/" + process + "/status") // empty if it cannot be read
	for _, line := range strings.Split(string(data), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			status[name] = strings.TrimSpace(value)
		}
	}
	return status
}

func processes() []string {
	var commands []string
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline") // fails only for malformed patterns
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil {
			commands = append(commands, strings.ReplaceAll(strings.TrimRight(string(data), "\x00"),
				"\x00", " "))
		}
	}
	sort.Strings(commands)
	return commands
}

func inspectPath(at string) pathInfo {
	var p pathInfo
	info, err := os.Stat(at)
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	p.Mode = info.Mode().String()
	var stat unix.Stat_t
	if err := unix.Stat(at, &stat); err == nil {
		p.UID, p.GID = stat.Uid, stat.Gid
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err == nil {
		p.Tmpfs, p.ReadOnly = fs.Type == unix.TMPFS_MAGIC, fs.Flags&unix.ST_RDONLY != 0
		p.Size = int64(fs.Blocks) * fs.Frsize
	}
	switch {
	case info.IsDir():
		entries, err := os.ReadDir(at)
		if err != nil {
			p.Problem = err.Error()
		}
		for _, e := range entries {
			p.Entries = append(p.Entries, e.Name())
		}
	case info.Mode().IsRegular():
		data, err := os.ReadFile(at)
		if err != nil {
			p.Problem = err.Error()
		}
		p.Text = string(data[:min(len(data), textMax)])
	case info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice:
		if err := p.readDevice(at); err != nil {
			p.Problem = err.Error()
		}
	}
	return p
}

// readDevice reads the beginning and the size of a block device.
func (p *pathInfo) readDevice(at string) error {
	device, err := os.Open(at)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }() // nothing was written
	data := make([]byte, textMax)
	n, err := io.ReadFull(device, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	text, _, _ := bytes.Cut(data[:n], []byte{0})
	p.Text = string(text)
	p.Size, err = device.Seek(0, io.SeekEnd)
	return err
}

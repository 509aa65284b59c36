package cgroup

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/google/cadvisor/lib/model"
)

// fileBytesMax bounds how much of a file is read.
const fileBytesMax = 1 << 20

// dir is an open directory of the cgroup file system. Its files are read one after the other into
// one buffer, because hundreds of cgroups have thousands of files.
type dir struct {
	fd int
	r  *Reader
}

func openDir(r *Reader, path string) (*dir, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &dir{fd, r}, nil
}

func (d *dir) close() { _ = unix.Close(d.fd) }

// read returns the content of a file without its final newline, valid until the next read; nil if
// the file cannot be read.
func (d *dir) read(name string) []byte {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	n := 0
	for {
		if n == len(d.r.buf) {
			if n >= fileBytesMax {
				return nil
			}
			d.r.buf = append(d.r.buf, make([]byte, n)...)
		}
		m, err := unix.Read(fd, d.r.buf[n:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil
		case m == 0:
			return bytes.TrimRight(d.r.buf[:n], "\n")
		default:
			n += m
		}
	}
}

// number returns the number in a file, the largest one for "max"; false if there is none.
func (d *dir) number(name string) (uint64, bool) { return parseNumber(d.read(name)) }

func parseNumber(text []byte) (uint64, bool) {
	if string(text) == "max" {
		return math.MaxUint64, true
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, false // ParseUint returns the largest number for one that overflows
	}
	return n, true
}

// numberOr returns the number in a file, or a default.
func (d *dir) numberOr(name string, otherwise uint64) uint64 {
	if n, ok := d.number(name); ok {
		return n
	}
	return otherwise
}

// pairs calls do for every line "KEY NUMBER" of a file, and reports whether the file had any.
func (d *dir) pairs(name string, do func(key string, value uint64)) bool {
	any := false
	for line := range bytes.Lines(d.read(name)) {
		key, text, _ := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(" "))
		if value, ok := parseNumber(text); ok {
			do(string(key), value)
			any = true
		}
	}
	return any
}

// pressure reads a PSI file: two lines such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
// Without the file nothing is changed.
func (d *dir) pressure(name string, psi *model.PSIStats) {
	for line := range bytes.Lines(d.read(name)) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var data *model.PSIData
		switch string(fields[0]) {
		case "some":
			data = &psi.Some
		case "full":
			data = &psi.Full
		default:
			continue
		}
		for _, field := range fields[1:] {
			key, value, _ := bytes.Cut(field, []byte("="))
			setPressure(data, string(key), string(value))
		}
	}
}

func setPressure(data *model.PSIData, key, value string) {
	if key == "total" {
		data.Total, _ = parseNumber([]byte(value))
		return
	}
	average, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(average) || math.IsInf(average, 0) {
		return // JSON cannot express NaN and infinity
	}
	switch key {
	case "avg10":
		data.Avg10 = average
	case "avg60":
		data.Avg60 = average
	case "avg300":
		data.Avg300 = average
	}
}

package log

import (
	"bytes"
	"io"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// queueBytesMax bounds the lines that wait to be written: some ten thousand lines, which a busy
// agent writes in minutes.
const queueBytesMax = 8 << 20

// The sinks belong to the process, as klog does.
var (
	errorSink = newSink(os.Stderr)
	infoSink  = newSink(os.Stdout) // used if the configuration splits the streams
)

// sink passes lines to a writer that may block, such as the pipe to a stuck journald. Write never
// blocks: a line that does not fit into the queue is dropped, and the number of dropped lines is
// logged when the writer goes on.
type sink struct {
	out  io.Writer
	wake chan struct{} // has an element if there may be something to write

	mu      sync.Mutex
	started bool
	queue   [][]byte
	bytes   int // of the lines in the queue, and of the line that is being written
	queued  int // number of lines so far
	written int // of these
	dropped int // number of lines, since the number was logged last
	waiting []flushWaiter
}

// flushWaiter waits until a number of lines have been written.
type flushWaiter struct {
	lines int
	done  chan struct{}
}

func newSink(out io.Writer) *sink { return &sink{out: out, wake: make(chan struct{}, 1)} }

// Write queues a line. It always succeeds.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		go s.run()
	}
	if s.bytes+len(line) > queueBytesMax {
		s.dropped++
	} else {
		s.queue = append(s.queue, bytes.Clone(line)) // the caller uses its buffer again
		s.bytes += len(line)
		s.queued++
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// run writes queued lines, as long as the process lives.
func (s *sink) run() {
	for range s.wake {
		for _, line := range s.take() {
			_, _ = s.out.Write(line) // there is no place to report an error
			s.countWritten(line)
		}
		if dropped := s.takeDropped(); dropped > 0 {
			klog.ErrorS(nil, "log lines were dropped because the log was not written in time",
				"lines", dropped)
		}
		s.endFlushes()
	}
}

// take returns the queued lines.
func (s *sink) take() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.queue
	s.queue = nil
	return lines
}

func (s *sink) countWritten(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= len(line)
	s.written++
}

// takeDropped returns the number of lines that were dropped and not reported.
func (s *sink) takeDropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.dropped
	s.dropped = 0
	return dropped
}

// endFlushes ends the flushes whose lines have been written.
func (s *sink) endFlushes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 && s.waiting[0].lines <= s.written {
		close(s.waiting[0].done)
		s.waiting = s.waiting[1:]
	}
}

// flush waits until every line that is queued now has been written, and the number of those that
// were dropped is queued.
func (s *sink) flush() {
	s.mu.Lock()
	if s.written == s.queued && s.dropped == 0 {
		s.mu.Unlock()
		return
	}
	w := flushWaiter{lines: s.queued, done: make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	<-w.done
}

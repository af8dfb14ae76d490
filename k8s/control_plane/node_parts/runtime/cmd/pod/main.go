// What runs in the smallest pods: "pause" does nothing, as in the container that
// holds a pod together; "spin" takes a tenth of a core, in small pieces.
package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		go func() {
			for begun := range time.Tick(20 * time.Millisecond) {
				for time.Since(begun) < 2*time.Millisecond {
				}
			}
		}()
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	<-asked
}

/* Symbol versions a C library may lack: ask for the oldest of each.
 *
 * Since glibc 2.34 these functions have moved into libc under a new version; the old version still
 * resolves everywhere. The shim must load on a container's glibc 2.17, the agent's modules on that
 * of the machine they are checked on.
 */
#ifndef GLIBC_H
#define GLIBC_H

#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
__asm__(".symver dlinfo, dlinfo@GLIBC_2.3.3");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.2.5");
__asm__(".symver pthread_mutexattr_init, pthread_mutexattr_init@GLIBC_2.2.5");
__asm__(".symver pthread_mutexattr_destroy, pthread_mutexattr_destroy@GLIBC_2.2.5");
__asm__(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
__asm__(".symver pthread_mutexattr_setprotocol,"
        " pthread_mutexattr_setprotocol@GLIBC_2.4");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver dladdr, dladdr@GLIBC_2.17");
__asm__(".symver dlinfo, dlinfo@GLIBC_2.17");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
__asm__(".symver pthread_join, pthread_join@GLIBC_2.17");
__asm__(".symver pthread_mutexattr_init, pthread_mutexattr_init@GLIBC_2.17");
__asm__(".symver pthread_mutexattr_destroy, pthread_mutexattr_destroy@GLIBC_2.17");
__asm__(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.17");
__asm__(".symver pthread_mutexattr_setprotocol,"
        " pthread_mutexattr_setprotocol@GLIBC_2.17");
#else
#error "the shim is built for x86-64 and aarch64"
#endif

#endif

/* PTX of a kernel, `spin`, that spins on the GPU's clock for as many nanoseconds as its one
 * parameter says. The simulated driver knows it by its name.
 */
#ifndef PROGRAMS_SPIN_H
#define PROGRAMS_SPIN_H

static const char spin_image[] = ".version 6.0\n"
                                 ".target sm_52\n"
                                 ".address_size 64\n"
                                 ".visible .entry spin(.param .u64 length)\n"
                                 "{\n"
                                 "    .reg .pred %more;\n"
                                 "    .reg .u64 %wanted, %start, %now, %spent;\n"
                                 "    ld.param.u64 %wanted, [length];\n"
                                 "    mov.u64 %start, %globaltimer;\n"
                                 "again:\n"
                                 "    mov.u64 %now, %globaltimer;\n"
                                 "    sub.u64 %spent, %now, %start;\n"
                                 "    setp.lt.u64 %more, %spent, %wanted;\n"
                                 "    @%more bra again;\n"
                                 "    ret;\n"
                                 "}\n";

#endif
